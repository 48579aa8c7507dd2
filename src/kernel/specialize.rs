//! stub
use super::constants::*;
use super::edit::EditedText;
use super::error::KernelError;
use super::private_array::PrivateArrayInfo;
use super::program::Program;
pub(crate) struct Specialized {
    pub module: naga::Module,
    pub info: naga::valid::ModuleInfo,
    pub entry: usize,
    pub text: EditedText,
    pub values: Vec<(ConstantInfo, ConstantValue)>,
    pub private_arrays: Vec<PrivateArrayInfo>,
}
pub(crate) fn specialize(
    program: &Program,
    entry: &str,
    _c: &Constants,
    _auto: Option<u32>,
    caps: naga::valid::Capabilities,
    _limit: u64,
) -> Result<Specialized, KernelError> {
    let module = naga::front::wgsl::parse_str(&program.source_text()).unwrap();
    let info = naga::valid::Validator::new(naga::valid::ValidationFlags::all(), caps)
        .validate(&module)
        .unwrap();
    let entry = module
        .entry_points
        .iter()
        .position(|e| e.name == entry)
        .unwrap();
    Ok(Specialized {
        module,
        info,
        entry,
        text: EditedText::unchanged(program.source_text()),
        values: vec![],
        private_arrays: vec![],
    })
}
