use wasm_bindgen::prelude::*;
#[wasm_bindgen(start)]
pub fn start() {
    console_error_panic_hook::set_once();
    wasm_bindgen_futures::spawn_local(async {
        let text = match hello().await { Ok(t) => t, Err(e) => format!("failed {e}") };
        let doc = web_sys::window().unwrap().document().unwrap();
        doc.body().unwrap().set_inner_text(&text);
    });
}
async fn hello() -> Result<String, tombolo::Error> {
    use tombolo::*;
    let context = Context::new_async().await?;
    let device = context.device_async().await?;
    let program = Program::new("scale.wgsl", "
         @group(0) @binding(0) var<storage, read_write> values: array<f32>;
         @group(0) @binding(1) var<uniform> factor: f32;
         @compute @workgroup_size(64)
         fn main(@builtin(global_invocation_id) id: vec3<u32>) {
             if id.x < arrayLength(&values) { values[id.x] *= factor; }
         }")?;
    let kernel = device.kernel(&program, "main", &Constants::new())?;
    let values = device.buffer(&[1.0f32, 2.0, 3.0])?;
    let event = kernel.launch().buffer("values", &values).value("factor", &10.0f32).invocations(3).submit()?;
    let got = values.read_back(..)?.await?;
    event.await?;
    Ok(format!("ok {got:?} {}", device.name()))
}
