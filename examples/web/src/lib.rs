//! A page that shows what of Tombolo runs in a browser: each capability is a check with a line, `ok NAME: …` or
//! `failed NAME: …`, and a picture is what a kernel computed.
//!
//! Everything here is async, since a page has one thread and must give it back: [`Context::new_async`] and
//! [`Context::device_async`] open a device, events and read-backs are awaited, and
//! [`SharedHeap::host_async`](tombolo::SharedHeap::host_async) lets the host look at what kernels left behind pointers.

mod checks;
mod page;

use tombolo::{Context, Device, Error};
use wasm_bindgen::prelude::wasm_bindgen;

use crate::checks::CHECKS;
use crate::page::Page;

/// Called by the browser when the module is there.
#[wasm_bindgen(start)]
pub fn start() {
    console_error_panic_hook::set_once();
    wasm_bindgen_futures::spawn_local(run());
}

/// Opens a device, runs the checks one after the other, and tells who waits for them.
async fn run() {
    let Some(page) = Page::find() else {
        return page::done(&["failed page: it lacks its own elements".to_owned()]);
    };
    let lines = match open().await {
        Ok((context, device)) => {
            page.device(&format!("{} by WebGPU", device.name()));
            check_all(&page, &context, &device).await
        }
        Err(error) => {
            page.trouble(&format!("{error}"));
            vec![page.line("device", Err(error.to_string()))]
        }
    };
    page::done(&lines);
}

async fn open() -> Result<(Context, Device), Error> {
    let context = Context::new_async().await?;
    let device = context.device_async().await?;
    Ok((context, device))
}

async fn check_all(page: &Page, context: &Context, device: &Device) -> Vec<String> {
    let mut lines = Vec::new();
    for (done, (name, check)) in CHECKS.iter().enumerate() {
        let found = check(page, context, device).await;
        lines.push(page.line(name, found.map_err(|error| error.to_string())));
        page.progress(done + 1, CHECKS.len());
    }
    lines
}
