//! The page's own elements.

use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{Clamped, JsCast};
use web_sys::{CanvasRenderingContext2d, Document, Element, HtmlCanvasElement, ImageData};

#[wasm_bindgen]
extern "C" {
    /// Settles the promise of the page that a test waits for.
    #[wasm_bindgen(js_name = checksAreDone)]
    fn checks_are_done(lines: Vec<String>);
}

/// Tells whoever waits that there are no more lines to come.
pub fn done(lines: &[String]) {
    checks_are_done(lines.to_vec());
}

/// The elements of `index.html`.
pub struct Page {
    document: Document,
    device: Element,
    trouble: Element,
    progress: Element,
    lines: Element,
    prints: Element,
    canvas: HtmlCanvasElement,
}

impl Page {
    /// `None` on another page.
    pub fn find() -> Option<Self> {
        let document = web_sys::window()?.document()?;
        let find = |id: &str| document.get_element_by_id(id);
        Some(Self {
            device: find("device")?,
            trouble: find("trouble")?,
            progress: find("progress")?,
            lines: find("lines")?,
            prints: find("prints")?,
            canvas: find("picture")?.dyn_into().ok()?,
            document,
        })
    }

    /// Says what the kernels run on.
    pub fn device(&self, text: &str) {
        self.device.set_text_content(Some(text));
    }

    /// Says why nothing runs.
    pub fn trouble(&self, text: &str) {
        self.device
            .set_text_content(Some("No kernels run on this page."));
        self.trouble.set_text_content(Some(text));
    }

    /// Moves the progress bar.
    pub fn progress(&self, done: usize, of: usize) {
        let share = done as f64 / of.max(1) as f64;
        let _ = self.progress.set_attribute("value", &share.to_string());
    }

    /// Adds the line of a check, and returns it.
    pub fn line(&self, name: &str, found: Result<String, String>) -> String {
        let (class, text) = match found {
            Ok(text) => ("ok", text),
            Err(error) => ("failed", error),
        };
        let line = format!("{class} {name}: {text}");
        if let Ok(item) = self.document.create_element("li") {
            let _ = item.set_attribute("class", class);
            item.set_text_content(Some(&line));
            let _ = self.lines.append_child(&item);
        }
        line
    }

    /// Adds a line that a kernel has printed.
    pub fn print(&self, line: &str) {
        let before = self.prints.text_content().unwrap_or_default();
        self.prints
            .set_text_content(Some(&format!("{before}{line}\n")));
    }

    /// Shows pixels of red, green, blue and alpha.
    pub fn show(&self, pixels: &[u8], width: u32) -> Result<(), String> {
        let said = |error| format!("{error:?}");
        let context = self.canvas.get_context("2d").map_err(said)?;
        let context = context.and_then(|context| context.dyn_into().ok());
        let context: CanvasRenderingContext2d = context.ok_or("the canvas has no 2d context")?;
        let picture = ImageData::new_with_u8_clamped_array(Clamped(pixels), width).map_err(said)?;
        context.put_image_data(&picture, 0.0, 0.0).map_err(said)
    }

    /// Width and height of the picture.
    pub fn size(&self) -> (u32, u32) {
        (self.canvas.width(), self.canvas.height())
    }
}
