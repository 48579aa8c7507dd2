//! The constants declared by a program, and the check of a caller's values against them. The check runs at every
//! launch, and costs a binary search per given value and no allocation but the result.

use super::constants::{ConstantInfo, ConstantValue, Constants, OverrideKey};
use super::error::KernelError;

/// The constants declared by a program, in the order of declaration, and an index.
#[derive(Clone, Debug, Default)]
pub(crate) struct Declared {
    infos: Vec<ConstantInfo>,
    by_name: Vec<u32>,
    by_id: Vec<(u16, u32)>,
    /// Constants whose default does not depend on others: only for these does setting the default change nothing.
    plain_default: Vec<bool>,
}

impl Declared {
    pub fn new(infos: Vec<ConstantInfo>, plain_default: Vec<bool>) -> Self {
        // A program with 2^32 constants would be a text of many gigabytes; naga takes no more than 4 GiB.
        let mut by_name = (0..infos.len() as u32).collect::<Vec<_>>();
        by_name.sort_by(|&a, &b| infos[a as usize].name.cmp(&infos[b as usize].name)); // indices of `infos`
        let mut by_id = infos
            .iter()
            .enumerate()
            .filter_map(|(i, c)| Some((c.id?, i as u32)))
            .collect::<Vec<_>>();
        by_id.sort_unstable();
        Self {
            infos,
            by_name,
            by_id,
            plain_default,
        }
    }

    pub fn infos(&self) -> &[ConstantInfo] {
        &self.infos
    }

    /// Index of the constant that `key` names.
    pub fn find(&self, key: &OverrideKey) -> Option<usize> {
        match key {
            OverrideKey::Name(name) => self.find_name(name),
            OverrideKey::Id(id) => {
                let at = self.by_id.binary_search_by_key(id, |e| e.0).ok()?;
                self.by_id.get(at).map(|e| e.1 as usize)
            }
        }
    }

    /// Index of the constant called `name`.
    pub fn find_name(&self, name: &str) -> Option<usize> {
        let name_of = |i: u32| self.infos.get(i as usize).map_or("", |c| c.name.as_str());
        let at = self
            .by_name
            .binary_search_by(|&i| name_of(i).cmp(name))
            .ok()?;
        self.by_name.get(at).map(|&i| i as usize)
    }

    /// Checks the given values and converts them to the declared types: pairs of constant and value, sorted.
    pub fn check(
        &self,
        program: &str,
        set: &Constants,
    ) -> Result<Vec<(usize, ConstantValue)>, KernelError> {
        let mut values: Vec<(usize, ConstantValue)> = Vec::with_capacity(set.iter().len());
        for (key, value) in set.iter() {
            let found = self.find(key).and_then(|i| Some((i, self.infos.get(i)?)));
            let Some((index, info)) = found else {
                return Err(KernelError::UnknownConstant {
                    program: program.to_owned(),
                    wanted: key.clone(),
                    available: self.infos.clone(),
                });
            };
            let value = info.convert(value)?;
            match values.binary_search_by_key(&index, |v| v.0) {
                Ok(_) => {
                    return Err(KernelError::AmbiguousConstant {
                        name: info.name.clone(),
                        id: info.id,
                    });
                }
                Err(at) => values.insert(at, (index, value)),
            }
        }
        Ok(values)
    }

    /// The key under which a module made with the values `set` is cached.
    pub fn key(&self, program: &str, set: &Constants) -> Result<SpecKey, KernelError> {
        if set.is_empty() {
            return Ok(SpecKey::default());
        }
        let values = self.check(program, set)?;
        let differs = |&&(i, value): &&(usize, ConstantValue)| {
            let plain = self.plain_default.get(i).copied().unwrap_or(false);
            let default = self.infos.get(i).and_then(|c| c.default);
            !plain || default.is_none_or(|d| d.bits() != value.bits())
        };
        Ok(SpecKey(
            values
                .iter()
                .filter(differs)
                .map(|(i, v)| (*i as u32, v.bits()))
                .collect(),
        ))
    }
}

/// Values of the constants of a program, reduced to the differences between specializations: the order of setting,
/// names or ids, and defaults set explicitly make no difference. Meaningful together with the program's id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct SpecKey(Box<[(u32, u64)]>);
