//! Pages of the host that several devices use in place, as the memory of a server that kernels of other devices call.
//!
//! ```text
//!      0   the words of the server, as in `frame`
//!      …   taken   one word for each port of a kernel: the call that the server has taken
//!  pages   areas   one for each device that may call, each with ports and a header of its own (`rpc::port::layout`)
//! ```
//!
//! The server's device imports all of it, and each other device its own area alone. A word has one writer, the locks of
//! an area are those of its device, and nothing asks for atomics between devices.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use crate::device::import::import_host;
use crate::device::window::{Pinned, Window};
use crate::device::words::Words as _;
use crate::device::{Capabilities, DeviceShared, ImportError};
use crate::kernel::server::GuestPlaces;
use crate::rpc::Patience;
use crate::rpc::port::layout::{CLOSED, LINE, PortLayout};
use crate::rpc::port::words::{HostWords, Words};

/// Ports of a device that calls. The server looks at all of them at every look.
const PORTS: usize = 16;
/// What areas begin with a multiple of: more than any driver asks of what it imports.
const PAGES: usize = 64 << 10;

/// Whether a device's running kernels see what others write into pages of the host; if not, why.
pub(super) fn can_share(capabilities: &Capabilities) -> Result<(), String> {
    if !capabilities.live_calls() {
        return Err(capabilities.why_live_calls());
    }
    if !capabilities.host_import() || !capabilities.unified_memory {
        return Err(capabilities.explain(crate::device::Aspect::HostImport));
    }
    Ok(())
}

/// A call of a kernel on another device.
#[derive(Debug, Clone, Copy)]
pub(super) struct GuestCall {
    area: usize,
    port: usize,
    request: u32,
}

pub(super) struct Block {
    window: Arc<Window>,
    words: Pinned,
    buffer: wgpu::Buffer,
    layout: PortLayout,
    places: GuestPlaces,
}

impl Block {
    /// A block whose first `own` words are the server's, with so many areas behind.
    pub fn new(
        device: &DeviceShared,
        own: usize,
        payload: usize,
        areas: usize,
    ) -> Result<Self, ImportError> {
        let layout = PortLayout::new(PORTS, payload);
        let taken = own.next_multiple_of(LINE);
        let first = (taken + areas * PORTS).next_multiple_of(PAGES / 4);
        let area = layout.words().next_multiple_of(PAGES / 4);
        let places = GuestPlaces {
            areas,
            first,
            area,
            ports: PORTS,
            stride: layout.arguments(1) - layout.arguments(0),
            requests: layout.request(0),
            arguments: layout.arguments(0),
            replies: layout.reply(0),
            results: layout.results(0),
            taken,
        };
        let window = Window::reserve((first + areas * area) as u64 * 4)?;
        let range = 0..window.size();
        window.commit(range.clone())?;
        let words = window.pin(range.clone())?;
        let buffer = import_host(&device.raw, &window, range, "tombolo server")?;
        for area in 0..areas {
            for (word, value) in layout.header() {
                words
                    .words()
                    .store(first + area * places.area + word, value);
            }
        }
        Ok(Self {
            window,
            words,
            buffer,
            layout,
            places,
        })
    }

    pub fn words(&self) -> &HostWords {
        self.words.words()
    }

    pub fn buffer(&self) -> &wgpu::Buffer {
        &self.buffer
    }

    pub fn places(&self) -> GuestPlaces {
        self.places
    }

    fn start(&self, area: usize) -> usize {
        self.places.first + area * self.places.area
    }

    fn ports(&self) -> impl Iterator<Item = (usize, usize)> {
        let each = self.places.ports;
        (0..self.places.areas).flat_map(move |area| (0..each).map(move |port| (area, port)))
    }

    /// The request and the reply at a port.
    fn mailboxes(&self, area: usize, port: usize) -> (u32, u32) {
        let (words, start) = (self.words(), self.start(area));
        (
            words.load(start + self.layout.request(port)),
            words.load(start + self.layout.reply(port)),
        )
    }

    /// Whether there is a call of a kernel without an answer.
    pub fn is_awaited(&self) -> bool {
        self.first_awaited().is_some()
    }

    /// A kernel's call without an answer.
    pub fn first_awaited(&self) -> Option<GuestCall> {
        self.ports().find_map(|(area, port)| {
            let (request, reply) = self.mailboxes(area, port);
            let call = GuestCall {
                area,
                port,
                request,
            };
            (request != reply).then_some(call)
        })
    }

    /// As [`super::frame::Frame::give_up`].
    pub fn give_up(&self, taken_only: bool, status: u32) {
        for (index, (area, port)) in self.ports().enumerate() {
            let (request, _) = self.mailboxes(area, port);
            let taken = self.words().load(self.places.taken + index);
            if !taken_only || taken == request {
                let call = GuestCall {
                    area,
                    port,
                    request,
                };
                self.give_up_at(call, status);
            }
        }
    }

    /// The same for one call, if it still has no answer.
    pub fn give_up_at(&self, call: GuestCall, status: u32) {
        let GuestCall {
            area,
            port,
            request,
        } = call;
        let words = self.words();
        let (posted, reply) = self.mailboxes(area, port);
        if posted != request || reply == request {
            return;
        }
        words.store(self.places.taken + area * self.places.ports + port, request);
        words.store(self.start(area) + self.layout.results(port), status);
        fence(Ordering::SeqCst);
        words.store(self.start(area) + self.layout.reply(port), request);
    }

    /// Tells kernels whether the server has gone.
    pub fn close(&self, closed: bool) {
        for area in 0..self.places.areas {
            (self.words()).store(self.start(area) + CLOSED, u32::from(closed));
        }
    }

    /// An area as memory of a device that is to call, whose patience is told there.
    pub fn area(
        &self,
        device: &DeviceShared,
        area: usize,
        patience: Patience,
    ) -> Result<wgpu::Buffer, ImportError> {
        for (word, value) in patience.words() {
            self.words().store(self.start(area) + word, value);
        }
        let start = self.start(area) as u64 * 4;
        let range: Range<u64> = start..start + self.places.area as u64 * 4;
        import_host(&device.raw, &self.window, range, "tombolo calls")
    }
}
