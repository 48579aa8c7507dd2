//! Files by handle.
//!
//! Files are reached through folders opened at their grant (cap-std), never by a path of the system; a name leading out
//! is told from a name denied by the system by the missing error of the system. Files are opened without waiting, so
//! that a pipe does not keep the server, and anything but a file is closed again. Cursors are the runtime's own:
//! positions and cursors do not disturb each other, also where the system has only one.

use std::sync::{Arc, Mutex};

use bytemuck::{Pod, Zeroable};

use super::access::{FileAccess, Root, RootMode};
use super::folder::OpenOptions;
use super::heap_accessor::{CHUNK, HeapAccessor, Place};
use super::open_file::{
    APPEND, CREATE, Handle, NEW, Open, READ, Reply, TRUNCATE, WRITE, advanced, reply,
};
use super::quota::Quota;
use super::slab::Slab;
use super::status::FileStatus;
use super::streams::Stream;
use super::texts::Texts;
use super::{narrow, wide};
use crate::device::wait::lock;
use crate::kernel::calls::printed::{PrintValues, printed};
use crate::kernel::calls::service_numbers::{FILE_BLOCK_BYTES, FILE_CURRENT, FILE_END, FILE_START};
use crate::memory::Ptr;
use crate::rpc::HostServicesBuilder;

/// Bytes of a block.
pub(super) const BLOCK: usize = FILE_BLOCK_BYTES as usize;

/// `FileBlock` in WGSL.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
pub(super) struct Block {
    pub status: u32,
    pub bytes: u32,
    pub words: [u32; BLOCK / 4],
}

impl Block {
    /// Of up to [`BLOCK`] bytes; further bytes are left out.
    pub fn new(status: u32, bytes: &[u8]) -> Self {
        let bytes = &bytes[..bytes.len().min(BLOCK)];
        let mut block = Self {
            status,
            bytes: bytes.len() as u32,
            words: [0; BLOCK / 4],
        };
        for (word, bytes) in block.words.iter_mut().zip(bytes.chunks(4)) {
            let mut four = [0; 4];
            four[..bytes.len()].copy_from_slice(bytes);
            *word = u32::from_le_bytes(four);
        }
        block
    }
}

/// `FilePlace` in WGSL.
type FilePlace = [u32; 4];

/// The files that kernels may open, and have opened.
pub(super) struct Files {
    roots: Vec<Root>,
    streams: [Option<Stream>; 3],
    open: Mutex<Slab<Arc<Open>>>,
    quota: Arc<Quota>,
    heap_accessor: Arc<HeapAccessor>,
    pub(super) texts: Arc<Texts>,
}

impl HostServicesBuilder {
    /// Lets kernels use files, as far as `access` grants them.
    ///
    /// | in WGSL | |
    /// | --- | --- |
    /// | `file_open(name: u32, mode: u32) -> FileHandle { status, file }` | `mode` is a sum of `FILE_READ`, `FILE_WRITE`, `FILE_APPEND`, `FILE_CREATE` (if there is none), `FILE_TRUNCATE`, `FILE_NEW` (there must be none) |
    /// | `file_close(file: u32) -> u32` | a status |
    /// | `file_size(file: u32) -> FilePlace { status, position: vec2<u32> }` | 64 bits, low word first |
    /// | `file_seek(file: u32, offset: vec2<u32>, origin: u32) -> FilePlace` | `origin` is `FILE_START`, `FILE_CURRENT` or `FILE_END`; the offset is signed |
    /// | `file_read(file: u32, to: usm_ptr, bytes: u32) -> FileReply { status, bytes }` | from the cursor on, into the heap |
    /// | `file_write(file: u32, data: usm_ptr, bytes: u32) -> FileReply` | |
    /// | `file_read_at(file: u32, offset: vec2<u32>, to: usm_ptr, bytes: u32) -> FileReply` | without the cursor, so that invocations need not take turns |
    /// | `file_write_at(file: u32, offset: vec2<u32>, data: usm_ptr, bytes: u32) -> FileReply` | |
    /// | `file_read_block(file: u32, offset: vec2<u32>) -> FileBlock { status, bytes, words: array<u32, 64> }` | up to `FILE_BLOCK_BYTES` (256) bytes in the reply itself, first byte lowest |
    /// | `file_write_block(file: u32, offset: vec2<u32>, block: FileBlock) -> FileReply` | the first `block.bytes` of it |
    /// | `file_next_block(file: u32) -> FileBlock` | from the cursor on |
    /// | `file_put_block(file: u32, block: FileBlock) -> FileReply` | at the cursor |
    /// | `file_print(file: u32, "format", values…) -> FileReply` | the text of a format string, as `print` takes (see [`print`](crate::print)), at the cursor, in one piece and with no line break but those of the format; in each form of a call |
    /// | `file_metadata(name: u32) -> FileMetadata { status, kind, bytes: vec2<u32>, modified: vec2<u32> }` | `kind` is `FILE_IS_FILE`, `FILE_IS_FOLDER` or `FILE_IS_OTHER`; `modified` in nanoseconds since 1970, 0 if the system does not say |
    /// | `file_rename(name: u32, new_name: u32) -> u32` | a status; a file with the new name is replaced |
    /// | `file_remove(name: u32) -> u32` | a status |
    /// | `folder_make(name: u32) -> u32` | a status |
    /// | `folder_remove(name: u32) -> u32` | of an empty one |
    /// | `folder_names(name: u32, behind: u32) -> TextReply { status, text }` | a text of the names in the folder, in the order of their bytes, each ended by a zero: as many as fit 4,096 bytes, from the first one behind the text `behind` on (0: from the beginning); an empty text at the end. To be dropped by `text_drop`. `.` is the folder without a name, `name/` one with a name |
    ///
    /// Changes of names need [`RootMode::Manage`]. The statuses are the values of [`FileStatus`]. A name is a text: a
    /// literal, `file_open("data/a.txt", FILE_READ)`, an argument or a text made by the kernel
    /// ([`HostServicesBuilder::texts`]). Handles 0, 1 and 2 are the standard streams, where granted; standard streams
    /// have no positions, and reads may give less than asked for. A read ending early, at the end of the file, is no
    /// error.
    ///
    /// Functions with a pointer need [`HostServicesBuilder::heap`], and a device using the heap in place without memory
    /// of its own: the caches of other devices do not follow the host's writes during launches, and such a call gets
    /// [`FileStatus::NoPointers`]. Blocks go everywhere. The read bytes are there when the call returns, but drivers
    /// may repeat an earlier load of the same place for a kernel: load each place once, or as an atomic.
    ///
    /// Files still open at the services' end are closed then.
    pub fn files(self, access: FileAccess) -> Self {
        let builder = self.texts();
        let provided = &builder.provided;
        let files = Arc::new(Files::new(
            access,
            Arc::clone(&provided.heap_accessor),
            Arc::clone(&provided.texts),
        ));
        builder.staying(|builder| {
            let builder = files.register_names(builder);
            files.register(builder)
        })
    }
}

fn place(found: Result<u64, FileStatus>) -> FilePlace {
    let (status, position) = match found {
        Ok(position) => (FileStatus::Ok, narrow(position)),
        Err(status) => (status, [0; 2]),
    };
    [status.code(), 0, position[0], position[1]]
}

impl Files {
    pub fn new(access: FileAccess, heap_accessor: Arc<HeapAccessor>, texts: Arc<Texts>) -> Self {
        Self {
            roots: access.roots,
            streams: access.streams,
            open: Mutex::new(Slab::new(access.open_files)),
            quota: Arc::new(Quota::new(access.quota)),
            heap_accessor,
            texts,
        }
    }

    fn register(self: Arc<Self>, builder: HostServicesBuilder) -> HostServicesBuilder {
        macro_rules! with {
            ($files:ident, $call:expr) => {{
                let $files = Arc::clone(&self);
                $call
            }};
        }
        type To = Ptr<u32>;
        builder
            .call(
                "fn file_open(name: u32, mode: u32) -> FileHandle",
                with!(f, move |name: u32, mode: u32| match f.open(name, mode) {
                    Ok(handle) => [FileStatus::Ok.code(), handle],
                    Err(status) => [status.code(), 0],
                }),
            )
            .call(
                "fn file_close(file: u32) -> u32",
                with!(f, move |file: u32| f.close(file).code()),
            )
            .call(
                "fn file_size(file: u32) -> FilePlace",
                with!(f, move |file: u32| place(f.size(file))),
            )
            .call(
                "fn file_seek(file: u32, offset: vec2<u32>, origin: u32) -> FilePlace",
                with!(f, move |file: u32, offset: [u32; 2], from: u32| {
                    place(f.seek(file, wide(offset) as i64, from))
                }),
            )
            .call(
                "fn file_read(file: u32, to: usm_ptr, bytes: u32) -> FileReply",
                with!(f, move |file: u32, to: To, bytes: u32| {
                    f.read_to(file, None, to, bytes)
                }),
            )
            .call(
                "fn file_read_at(file: u32, offset: vec2<u32>, to: usm_ptr, bytes: u32) -> FileReply",
                with!(f, move |file: u32, at: [u32; 2], to: To, bytes: u32| {
                    f.read_to(file, Some(wide(at)), to, bytes)
                }),
            )
            .call(
                "fn file_write(file: u32, data: usm_ptr, bytes: u32) -> FileReply",
                with!(f, move |file: u32, from: To, bytes: u32| {
                    f.write_from(file, None, from, bytes)
                }),
            )
            .call(
                "fn file_write_at(file: u32, offset: vec2<u32>, data: usm_ptr, bytes: u32) -> FileReply",
                with!(f, move |file: u32, at: [u32; 2], from: To, bytes: u32| {
                    f.write_from(file, Some(wide(at)), from, bytes)
                }),
            )
            .call(
                "fn file_read_block(file: u32, offset: vec2<u32>) -> FileBlock",
                with!(f, move |file: u32, at: [u32; 2]| {
                    f.read_block(file, Some(wide(at)))
                }),
            )
            .call(
                "fn file_next_block(file: u32) -> FileBlock",
                with!(f, move |file: u32| f.read_block(file, None)),
            )
            .call(
                "fn file_write_block(file: u32, offset: vec2<u32>, block: FileBlock) -> FileReply",
                with!(f, move |file: u32, at: [u32; 2], block: Block| {
                    f.write_block(file, Some(wide(at)), &block)
                }),
            )
            .call(
                "fn file_put_block(file: u32, block: FileBlock) -> FileReply",
                with!(f, move |file: u32, block: Block| {
                    f.write_block(file, None, &block)
                }),
            )
            .call(
                "fn file_print(file: u32, format: u32, values: PrintValues) -> FileReply",
                with!(f, move |file: u32, format: u32, values: PrintValues| {
                    f.print(file, format, &values)
                }),
            )
    }

    /// The name in a text.
    pub(super) fn name(&self, text: u32) -> Result<String, FileStatus> {
        let name = self.texts.get(text).ok_or(FileStatus::UnknownText)?;
        String::from_utf8(name).map_err(|_| FileStatus::BadName)
    }

    /// The folder of a name, and the rest of the name.
    pub(super) fn root<'s, 'n>(&'s self, name: &'n str) -> Result<(&'s Root, &'n str), FileStatus> {
        if name.is_empty() || name.contains('\0') {
            return Err(FileStatus::BadName);
        }
        let named = |name: &str| self.roots.iter().find(|root| root.name == name);
        if let Some((first, rest)) = name.split_once('/')
            && !first.is_empty()
            && let Some(root) = named(first)
        {
            // `name//etc` would be absolute without its name.
            return Ok((root, rest));
        }
        Ok((named("").ok_or(FileStatus::NotGranted)?, name))
    }

    pub fn open(&self, name: u32, mode: u32) -> Result<u32, FileStatus> {
        let all = READ | WRITE | APPEND | CREATE | TRUNCATE | NEW;
        let has = |bits: u32| mode & bits != 0;
        let changes = has(WRITE | APPEND);
        if mode & !all != 0
            || !has(READ | WRITE | APPEND)
            || (has(CREATE | TRUNCATE | NEW) && !changes)
            || (has(TRUNCATE) && has(APPEND))
        {
            return Err(FileStatus::BadMode);
        }
        let name = self.name(name)?;
        let (root, path) = self.root(&name)?;
        if changes && root.mode == RootMode::ReadOnly {
            return Err(FileStatus::NotGranted);
        }
        if lock(&self.open).is_full() {
            // Before anything is made or truncated.
            return Err(FileStatus::TooMany);
        }
        let mut options = OpenOptions::new();
        options
            .read(has(READ))
            .write(has(WRITE) && !has(APPEND))
            .append(has(APPEND))
            .create(has(CREATE))
            .create_new(has(NEW))
            .truncate(has(TRUNCATE));
        #[cfg(unix)]
        {
            use cap_std::fs::OpenOptionsExt;
            // A pipe put there would keep the server thread until its other end is opened.
            options.custom_flags(libc::O_NONBLOCK);
        }
        let failed = |error: std::io::Error| FileStatus::of(&error);
        let file = root.dir.open_with(path, &options).map_err(failed)?;
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(FileStatus::NotAFile);
        }
        let open = Open {
            file: file.into_std(),
            cursor: Mutex::new(0),
            mode,
            quota: Arc::clone(&self.quota),
        };
        let handle = lock(&self.open).insert(Arc::new(open));
        handle.ok_or(FileStatus::TooMany)
    }

    pub fn close(&self, file: u32) -> FileStatus {
        match lock(&self.open).remove(file) {
            Some(_) => FileStatus::Ok,
            // Streams stay: other kernels use them.
            None => FileStatus::UnknownHandle,
        }
    }

    fn handle(&self, file: u32) -> Result<Handle<'_>, FileStatus> {
        if let Some(Some(stream)) = self.streams.get(file as usize) {
            return Ok(Handle::Stream(stream));
        }
        let open = lock(&self.open).get(file).cloned();
        open.map(Handle::File).ok_or(FileStatus::UnknownHandle)
    }

    fn file(&self, file: u32) -> Result<Arc<Open>, FileStatus> {
        match self.handle(file)? {
            Handle::Stream(_) => Err(FileStatus::NotSeekable),
            Handle::File(open) => Ok(open),
        }
    }

    pub fn size(&self, file: u32) -> Result<u64, FileStatus> {
        self.file(file)?.size()
    }

    pub fn seek(&self, file: u32, offset: i64, from: u32) -> Result<u64, FileStatus> {
        let open = self.file(file)?;
        let mut cursor = lock(&open.cursor);
        let base = match from {
            FILE_START => 0,
            FILE_CURRENT => *cursor,
            FILE_END => open.size()?,
            _ => return Err(FileStatus::BadMode),
        };
        let at = base.checked_add_signed(offset);
        let at = advanced(at.ok_or(FileStatus::BadPosition)?, 0)?;
        *cursor = at;
        Ok(at)
    }

    pub fn read_to(&self, file: u32, at: Option<u64>, to: Ptr<u32>, bytes: u32) -> Reply {
        let found = self
            .handle(file)
            .and_then(|handle| Ok((handle, self.heap_accessor.place(to, bytes)?)));
        match found {
            Ok((handle, place)) => handle.read(at, place.bytes, |start, bytes| {
                place.write(start, bytes);
            }),
            Err(status) => reply(status, 0),
        }
    }

    pub fn read_block(&self, file: u32, at: Option<u64>) -> Block {
        let mut bytes = [0u8; BLOCK];
        let [status, len] = match self.handle(file) {
            Ok(handle) => handle.read(at, BLOCK, |start, some| {
                if let Some(to) = bytes.get_mut(start..start + some.len()) {
                    to.copy_from_slice(some);
                }
            }),
            Err(status) => reply(status, 0),
        };
        Block::new(status, bytes.get(..len as usize).unwrap_or_default())
    }

    pub fn write_from(&self, file: u32, at: Option<u64>, from: Ptr<u32>, bytes: u32) -> Reply {
        let found = self
            .handle(file)
            .and_then(|handle| Ok((handle, self.heap_accessor.place(from, bytes)?)));
        match found {
            Ok((handle, place)) => handle.write(at, chunks(&place)),
            Err(status) => reply(status, 0),
        }
    }

    pub fn write_block(&self, file: u32, at: Option<u64>, block: &Block) -> Reply {
        let handle = match self.handle(file) {
            Ok(handle) => handle,
            Err(status) => return reply(status, 0),
        };
        let len = block.bytes as usize;
        if len > BLOCK {
            return reply(FileStatus::BadLength, 0);
        }
        let mut bytes: Vec<u8> = block.words.iter().flat_map(|w| w.to_le_bytes()).collect();
        bytes.truncate(len);
        let mut bytes = Some(bytes).filter(|bytes| !bytes.is_empty());
        handle.write(at, || bytes.take())
    }
}

impl Files {
    /// Writes the text of a format string at the cursor, in one piece.
    fn print(&self, file: u32, format: u32, values: &PrintValues) -> Reply {
        let text = || printed(format, values).ok_or(FileStatus::BadFormat);
        let found = (self.handle(file)).and_then(|handle| Ok((handle, text()?)));
        match found {
            Ok((handle, text)) => {
                let mut bytes = Some(text.into_bytes()).filter(|bytes| !bytes.is_empty());
                handle.write(None, || bytes.take())
            }
            Err(status) => reply(status, 0),
        }
    }
}

/// The bytes of a place, one chunk after the other.
fn chunks(place: &Place) -> impl FnMut() -> Option<Vec<u8>> {
    let mut start = 0;
    move || {
        let mut chunk = vec![0; CHUNK.min(place.bytes.saturating_sub(start))];
        let len = place.read(start, &mut chunk);
        start += len;
        (len > 0).then_some(chunk)
    }
}
