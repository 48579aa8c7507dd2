//! stub
use super::constants::{Constants, Declared, SpecKey};
use super::error::KernelError;
use std::sync::Arc;
/// stub
#[derive(Clone)]
pub struct Program(Arc<(u64, String, Arc<str>, Declared)>);
impl Program {
    /// stub
    pub fn new(name: impl Into<String>, source: impl Into<String>) -> Result<Program, KernelError> {
        let s: String = source.into();
        Ok(Program(Arc::new((
            crate::device::unique_id(),
            name.into(),
            s.into(),
            Declared::new(vec![], vec![]),
        ))))
    }
    /// stub
    pub fn name(&self) -> &str {
        &self.0.1
    }
    pub(crate) fn id(&self) -> u64 {
        self.0.0
    }
    pub(crate) fn source_text(&self) -> Arc<str> {
        self.0.2.clone()
    }
    pub(crate) fn key(&self, c: &Constants) -> Result<SpecKey, KernelError> {
        self.0.3.key(&self.0.1, c)
    }
}
