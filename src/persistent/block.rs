//! Pages of the host used in place by several devices, as the memory of a server for calls from kernels of other
//! devices.
//!
//! ```text
//!      0   the words of the server, as in `frame`
//!      …   taken   one word for each port of a kernel: the call that the server has taken
//!  pages   areas   one for each device that may call, each with ports and a header of its own (`rpc::port::layout`)
//! ```
//!
//! The server's device imports all areas, and each other device only its own. A word has a single writer, the locks of
//! an area belong to its device, and no access needs atomics between devices.
//!
//! The polling kernel looks at the bell of the host and at the sum of the requests in all areas, each of which one
//! client counts up. A post rings no bell heard by the host; so while a possibly calling launch is on its way (a
//! completion hook tells) the relay looks for calls every 200 µs when no lease runs.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use super::settle::Calls;
use crate::device::import::import_host;
use crate::device::window::{Pinned, Window};
use crate::device::words::Words as _;
use crate::device::{Capabilities, DeviceShared, ImportError};
use crate::kernel::server::RemoteClientPlaces;
use crate::rpc::WaitBudget;
use crate::rpc::port::layout::{CLOSED, LINE, PortLayout};
use crate::rpc::port::words::{HostWords, Words};

/// Ports of a calling device. The server looks at all such ports at every look.
const PORTS: usize = 16;
/// The alignment of areas: more than any driver asks of imported memory.
const PAGES: usize = 64 << 10;

/// Whether a device's running kernels see the writes of others into pages of the host; if not, why.
pub(super) fn can_share(capabilities: &Capabilities) -> Result<(), String> {
    if !capabilities.live_calls() {
        return Err(capabilities.why_live_calls());
    }
    if !capabilities.host_import() || !capabilities.unified_memory {
        return Err(capabilities.explain(crate::device::Aspect::HostImport));
    }
    Ok(())
}

pub(super) struct Block {
    window: Arc<Window>,
    words: Pinned,
    buffer: wgpu::Buffer,
    layout: PortLayout,
    places: RemoteClientPlaces,
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
        let places = RemoteClientPlaces {
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
            let (word, value) = layout.header();
            (words.words()).store(first + area * places.area + word, value);
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

    pub fn places(&self) -> RemoteClientPlaces {
        self.places
    }

    fn start(&self, area: usize) -> usize {
        self.places.first + area * self.places.area
    }

    fn place(&self, index: usize) -> (usize, usize) {
        (index / self.places.ports, index % self.places.ports)
    }

    /// Tells kernels whether the server has gone.
    pub fn close(&self, closed: bool) {
        for area in 0..self.places.areas {
            (self.words()).store(self.start(area) + CLOSED, u32::from(closed));
        }
    }

    /// An area as memory of a device about to call, with the device's wait budget written there.
    pub fn area(
        &self,
        device: &DeviceShared,
        area: usize,
        wait_budget: WaitBudget,
    ) -> Result<wgpu::Buffer, ImportError> {
        for (word, value) in wait_budget.words() {
            self.words().store(self.start(area) + word, value);
        }
        let start = self.start(area) as u64 * 4;
        let range: Range<u64> = start..start + self.places.area as u64 * 4;
        import_host(&device.raw, &self.window, range, "tombolo calls")
    }
}

/// The ports of all areas, one after another.
impl Calls for Block {
    fn ports(&self) -> usize {
        self.places.areas * self.places.ports
    }

    fn request(&self, index: usize) -> u32 {
        let (area, port) = self.place(index);
        (self.words()).load(self.start(area) + self.layout.request(port))
    }

    fn reply(&self, index: usize) -> u32 {
        let (area, port) = self.place(index);
        (self.words()).load(self.start(area) + self.layout.reply(port))
    }

    fn taken(&self, index: usize) -> u32 {
        self.words().load(self.places.taken + index)
    }

    fn take(&self, index: usize, request: u32) {
        self.words().store(self.places.taken + index, request);
    }

    fn answer(&self, index: usize, request: u32, [status, _]: [u32; 2]) {
        let (words, (area, port)) = (self.words(), self.place(index));
        words.store(self.start(area) + self.layout.results(port), status);
        fence(Ordering::SeqCst);
        words.store(self.start(area) + self.layout.reply(port), request);
    }
}
