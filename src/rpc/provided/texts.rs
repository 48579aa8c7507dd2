//! Texts by number: the literals of programs, the program's arguments, and texts put together by kernels.

use std::sync::{Arc, Mutex};

use super::files::Block;
use super::heap_accessor::HeapAccessor;
use super::slab::Slab;
use super::status::FileStatus;
use crate::device::wait::lock;
use crate::kernel::calls::printed::{PrintValues, printed};
use crate::kernel::calls::texts::{LITERAL, intern, literal};
use crate::memory::Ptr;
use crate::rpc::{HostServices, HostServicesBuilder};

/// The most texts put together at once by kernels of some services.
const TEXTS: usize = 1024;
/// The most bytes of such a text: as long as file names get.
pub(super) const LENGTH: usize = 4096;

pub(crate) struct Texts {
    arguments: Mutex<Vec<u32>>,
    made: Mutex<Slab<Vec<u8>>>,
}

impl Default for Texts {
    fn default() -> Self {
        Self {
            arguments: Mutex::default(),
            made: Mutex::new(Slab::new(TEXTS)),
        }
    }
}

type Reply = [u32; 2];

fn reply<T: Into<u32>>(found: Result<T, FileStatus>) -> Reply {
    match found {
        Ok(value) => [FileStatus::Ok.code(), value.into()],
        Err(status) => [status.code(), 0],
    }
}

fn status(found: Result<(), FileStatus>) -> u32 {
    found.err().unwrap_or(FileStatus::Ok).code()
}

impl HostServicesBuilder {
    /// Lets kernels look into texts and put some together. Comes with [`HostServicesBuilder::files`] and
    /// [`HostServicesBuilder::arguments`].
    ///
    /// WGSL has no strings. In programs made by [`ProgramBuilder::services`](crate::kernel::ProgramBuilder::services) a
    /// literal such as `"a.txt"` is a `u32` for the text, and the text stays on the host; so are arguments and texts
    /// made by a kernel. 0 stands for no text.
    ///
    /// | in WGSL | |
    /// | --- | --- |
    /// | `text_from(data: usm_ptr, bytes: u32) -> TextReply { status, text }` | a text of what lies in the heap, up to 4,096 bytes |
    /// | `text_new() -> TextReply` | an empty one |
    /// | `text_push(text: u32, word: u32, bytes: u32) -> u32` | appends up to four bytes, the lowest first; a status |
    /// | `text_join(text: u32, end: u32) -> u32` | appends another text |
    /// | `text_print(text: u32, "format", values…) -> u32` | appends the text of a format string, as `print` takes (see [`print`](crate::print)), or nothing where it would be longer than a text can be; in each form of a call |
    /// | `text_drop(text: u32) -> u32` | forgets one that a kernel has made; there are 1,024 at most |
    /// | `text_size(text: u32) -> FileReply { status, bytes }` | its length |
    /// | `text_block(text: u32, start: u32) -> FileBlock` | up to 256 bytes of it |
    /// | `text_read(text: u32, to: usm_ptr, bytes: u32) -> FileReply` | up to so many bytes of it, into the heap |
    ///
    /// Functions with a pointer work as the functions of [`HostServicesBuilder::files`].
    pub fn texts(self) -> Self {
        if self.provided.has_texts.set(()).is_err() {
            return self;
        }
        let texts = Arc::clone(&self.provided.texts);
        let heap_accessor = Arc::clone(&self.provided.heap_accessor);
        macro_rules! with {
            ($texts:ident, $call:expr) => {{
                let $texts = Arc::clone(&texts);
                $call
            }};
        }
        let from = Arc::clone(&heap_accessor);
        self.call(
            "fn text_from(data: usm_ptr, bytes: u32) -> TextReply",
            with!(t, move |at: Ptr<u32>, bytes: u32| reply(
                t.make_from(&from, at, bytes)
            )),
        )
        .call(
            "fn text_new() -> TextReply",
            with!(t, move || reply(t.make(Vec::new()))),
        )
        .call(
            "fn text_push(text: u32, word: u32, bytes: u32) -> u32",
            with!(t, move |text: u32, word: u32, bytes: u32| {
                let bytes = word.to_le_bytes().get(..bytes as usize).map(<[u8]>::to_vec);
                status((bytes.ok_or(FileStatus::BadLength)).and_then(|b| t.push(text, &b)))
            }),
        )
        .call(
            "fn text_join(text: u32, end: u32) -> u32",
            with!(t, move |text: u32, end: u32| {
                let end = t.get(end).ok_or(FileStatus::UnknownText);
                status(end.and_then(|end| t.push(text, &end)))
            }),
        )
        .call(
            "fn text_print(text: u32, format: u32, values: PrintValues) -> u32",
            with!(t, move |text: u32, format: u32, values: PrintValues| {
                let end = printed(format, &values).ok_or(FileStatus::BadFormat);
                status(end.and_then(|end| t.push(text, end.as_bytes())))
            }),
        )
        .call(
            "fn text_drop(text: u32) -> u32",
            with!(t, move |text: u32| {
                let dropped = lock(&t.made).remove(text).map(|_| ());
                status(dropped.ok_or(FileStatus::UnknownText))
            }),
        )
        .call(
            "fn text_size(text: u32) -> FileReply",
            with!(t, move |text: u32| {
                let size = t.get(text).map(|text| text.len() as u32);
                reply(size.ok_or(FileStatus::UnknownText))
            }),
        )
        .call(
            "fn text_block(text: u32, start: u32) -> FileBlock",
            with!(t, move |text: u32, start: u32| t.block(text, start)),
        )
        .call(
            "fn text_read(text: u32, to: usm_ptr, bytes: u32) -> FileReply",
            with!(t, move |text: u32, to: Ptr<u32>, bytes: u32| reply(t.read(
                &heap_accessor,
                text,
                to,
                bytes
            ))),
        )
    }

    /// Gives kernels the arguments of the program: `arg_count() -> u32` and `arg(index: u32) -> u32`, a text
    /// ([`HostServicesBuilder::texts`]), 0 behind the last one. Usually `std::env::args()`, with the program's name
    /// first.
    pub fn arguments<A: AsRef<str>>(self, arguments: impl IntoIterator<Item = A>) -> Self {
        let texts = Arc::clone(&self.provided.texts);
        let ids = arguments.into_iter().map(|text| intern(text.as_ref()));
        *lock(&texts.arguments) = ids.collect();
        let counted = Arc::clone(&texts);
        self.texts()
            .call("fn arg_count() -> u32", move || {
                lock(&counted.arguments).len() as u32
            })
            .call("fn arg(index: u32) -> u32", move |index: u32| {
                let arguments = lock(&texts.arguments);
                arguments.get(index as usize).copied().unwrap_or(0)
            })
    }
}

impl HostServices {
    /// The number of a text for kernels, to be handed to a kernel as a value. Texts are kept for the life of the
    /// process.
    pub fn text(text: &str) -> u32 {
        intern(text)
    }

    /// The text of a literal, or of a number from [`HostServices::text`]: for the program's own functions called with
    /// texts by kernels, `note("done", 3u)`. `None` for other numbers, also those of texts put together by kernels.
    pub fn text_of(number: u32) -> Option<Arc<str>> {
        literal(number)
    }
}

impl Texts {
    /// The bytes of a text.
    pub fn get(&self, id: u32) -> Option<Vec<u8>> {
        match id & LITERAL {
            0 => lock(&self.made).get(id).cloned(),
            _ => literal(id).map(|text| text.as_bytes().to_vec()),
        }
    }

    pub(super) fn make(&self, text: Vec<u8>) -> Result<u32, FileStatus> {
        lock(&self.made).insert(text).ok_or(FileStatus::TooMany)
    }

    fn make_from(
        &self,
        heap_accessor: &HeapAccessor,
        at: Ptr<u32>,
        bytes: u32,
    ) -> Result<u32, FileStatus> {
        if bytes as usize > LENGTH {
            return Err(FileStatus::BadLength);
        }
        let place = heap_accessor.place(at, bytes)?;
        let mut text = vec![0; place.bytes];
        place.read(0, &mut text);
        self.make(text)
    }

    fn push(&self, id: u32, end: &[u8]) -> Result<(), FileStatus> {
        let mut made = lock(&self.made);
        // Literals are not in there.
        let text = made.get(id).ok_or(FileStatus::UnknownText)?;
        if text.len() + end.len() > LENGTH {
            return Err(FileStatus::BadLength);
        }
        text.extend_from_slice(end);
        Ok(())
    }

    fn block(&self, id: u32, start: u32) -> Block {
        let Some(text) = self.get(id) else {
            return Block::new(FileStatus::UnknownText.code(), &[]);
        };
        let bytes = text.get(start as usize..).unwrap_or_default();
        Block::new(FileStatus::Ok.code(), bytes)
    }

    fn read(
        &self,
        heap_accessor: &HeapAccessor,
        id: u32,
        to: Ptr<u32>,
        bytes: u32,
    ) -> Result<u32, FileStatus> {
        let text = self.get(id).ok_or(FileStatus::UnknownText)?;
        let place = heap_accessor.place(to, bytes)?;
        let len = text.len().min(place.bytes);
        place.write(0, &text[..len]);
        Ok(len as u32)
    }
}
