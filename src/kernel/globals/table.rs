//! The table itself: names, known properties, and places.

mod chunks;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::compare::{check_hosts, check_layouts, check_size, place_in_wgsl};
use super::conflict::{GlobalConflict, GlobalPlace};
use super::{Declaration, GlobalScope, GlobalUse, ModuleIdentity};
use crate::addresses::region::AllocationId;
use crate::device::wait::lock;
use crate::kernel::layout::TypeLayout;
use chunks::Chunk;

/// Variables of a kernel with more bytes together than this are placed separately: a single allocation on a device is
/// bounded.
const TOGETHER: u64 = 64 << 20;

/// The names of a context.
#[derive(Debug, Default)]
pub(crate) struct GlobalTable(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    lookups: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    entries: BTreeMap<String, Entry>,
    chunks: Vec<Chunk>,
}

/// What is known of a name.
#[derive(Debug, Default)]
struct Entry {
    host: Option<Arc<Declaration>>,
    /// The first declaration in WGSL.
    wgsl: Option<InWgsl>,
    /// The instance of all modules, for device scope.
    device: Option<Arc<Instance>>,
    /// Instances of single modules, for image scope.
    images: Vec<(ModuleIdentity, Weak<Instance>)>,
}

/// A declaration in WGSL.
#[derive(Debug)]
struct InWgsl {
    place: GlobalPlace,
    layout: TypeLayout,
    /// The type in full.
    canonical: String,
}

/// A variable with a place. A variable of device scope lives as long as the table, a variable of image scope as long as
/// the kernels using it.
#[derive(Debug)]
pub(crate) struct Instance {
    /// A number unique to the instance.
    pub id: u64,
    /// The full name.
    pub name: Arc<str>,
    pub scope: GlobalScope,
    pub chunk: usize,
    /// Bytes from the start of the chunk.
    pub offset: u32,
    pub bytes: u64,
    allocation: AllocationId,
    owner: Weak<Shared>,
    start: Mutex<Start>,
}

/// How an instance begins on a device.
#[derive(Debug, Default)]
struct Start {
    host: Option<Arc<Declaration>>,
    /// Some device has the variable already.
    touched: bool,
}

impl Drop for Instance {
    fn drop(&mut self) {
        if let Some(owner) = self.owner.upgrade() {
            let mut state = lock(&owner.state);
            if let Some(chunk) = state.chunks.get_mut(self.chunk) {
                // The place was allocated there, and is freed here only.
                let _ = chunk.region.free(self.allocation);
            }
        }
    }
}

impl Instance {
    /// The declaration in Rust, if already there. From here on initial values come too late.
    pub fn touch(&self) -> Option<Arc<Declaration>> {
        let mut start = lock(&self.start);
        start.touched = true;
        start.host.clone()
    }

    /// The declaration in Rust, if there is one yet.
    pub fn declaration(&self) -> Option<Arc<Declaration>> {
        lock(&self.start).host.clone()
    }
}

/// Where the host finds a variable.
#[derive(Debug)]
pub(crate) enum HostView {
    /// In the only instance.
    Instance(Arc<Instance>),
    /// Nowhere yet: of image scope, and not named by any module.
    Host,
    /// In several modules, listed by name.
    Several(Vec<String>),
}

/// A variable as known to [`GlobalTable::find`].
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub host: Option<Arc<Declaration>>,
    pub bytes: u64,
    pub type_name: String,
    pub layout: Option<TypeLayout>,
    pub scope: GlobalScope,
    pub instances: Vec<Arc<Instance>>,
}

impl GlobalTable {
    /// Notes a declaration in Rust.
    ///
    /// # Errors
    /// [`GlobalConflict`] with what was known.
    pub fn declare(&self, declaration: &Declaration) -> Result<(), GlobalConflict> {
        let mut kept = Vec::new();
        self.locked(|state| state.declare(declaration, &mut kept))
    }

    /// Where the host finds the variable, declared by the way.
    ///
    /// # Errors
    /// [`GlobalConflict`] with what was known.
    pub fn host_view(&self, declaration: &Declaration) -> Result<HostView, GlobalConflict> {
        let mut kept = Vec::new();
        self.locked(|state| {
            state.declare(declaration, &mut kept)?;
            state.view(declaration.name, &mut kept, &self.0)
        })
    }

    /// Where the host finds the variable of that name; `None` without a declaration.
    ///
    /// # Errors
    /// [`GlobalConflict::TooLarge`].
    pub fn view_of(&self, name: &str) -> Result<Option<HostView>, GlobalConflict> {
        let mut kept = Vec::new();
        self.locked(|state| match state.entries.contains_key(name) {
            true => state.view(name, &mut kept, &self.0).map(Some),
            false => Ok(None),
        })
    }

    /// What is known of a name.
    pub fn find(&self, name: &str) -> Option<Known> {
        self.locked(|state| state.entries.get(name).map(Entry::known))
    }

    /// All names, in their order.
    pub fn names(&self) -> Vec<String> {
        self.locked(|state| state.entries.keys().cloned().collect())
    }

    /// The instances used by the kernels of a module, in the order of `uses`; made where new.
    ///
    /// # Errors
    /// [`GlobalConflict`] with what was known; nothing is noted then.
    pub fn resolve(
        &self,
        module: &ModuleIdentity,
        uses: &[GlobalUse],
    ) -> Result<Vec<Arc<Instance>>, GlobalConflict> {
        // Dropped behind the lock, since the last handle of an instance takes the lock at its drop.
        let mut kept = Vec::new();
        self.locked(|state| state.resolve(module, uses, &mut kept, &self.0))
    }

    /// How often the table was asked.
    pub fn lookups(&self) -> u64 {
        self.0.lookups.load(Ordering::Relaxed)
    }

    /// Bytes in use in all chunks.
    #[cfg(test)]
    pub fn bytes_in_use(&self) -> u64 {
        let state = lock(&self.0.state);
        let used = |chunk: &Chunk| chunk.region.stats().in_use;
        state.chunks.iter().map(used).sum()
    }

    /// Bytes of a chunk.
    pub fn chunk_bytes(&self, chunk: usize) -> u64 {
        lock(&self.0.state)
            .chunks
            .get(chunk)
            .map_or(0, |chunk| chunk.bytes)
    }

    fn locked<R>(&self, work: impl FnOnce(&mut State) -> R) -> R {
        self.0.lookups.fetch_add(1, Ordering::Relaxed);
        work(&mut lock(&self.0.state))
    }
}

impl Entry {
    fn scope(&self) -> GlobalScope {
        self.host
            .as_ref()
            .map_or(GlobalScope::Device, |host| host.scope)
    }

    fn bytes(&self) -> u64 {
        match (&self.host, &self.wgsl) {
            (Some(host), _) => host.bytes,
            (None, Some(wgsl)) => wgsl.place.bytes,
            (None, None) => 0,
        }
    }

    fn known(&self) -> Known {
        let type_name = match (&self.wgsl, &self.host) {
            (Some(wgsl), _) => wgsl.place.type_name.clone(),
            (None, Some(host)) => host.type_name.to_owned(),
            (None, None) => String::new(),
        };
        Known {
            host: self.host.clone(),
            bytes: self.bytes(),
            type_name,
            layout: self.wgsl.as_ref().map(|wgsl| wgsl.layout.clone()),
            scope: self.scope(),
            instances: self.instances(),
        }
    }

    /// Takes back the declarations of a module whose kernels are gone, or were never finished, before any device had
    /// the variable: the name is free again.
    fn settle(&mut self, kept: &mut Vec<Arc<Instance>>) {
        self.images.retain(|(_, image)| image.strong_count() > 0);
        let unused = |instance: &Arc<Instance>| {
            Arc::strong_count(instance) == 1 && !lock(&instance.start).touched
        };
        if self.host.is_none() && self.images.is_empty() && self.device.as_ref().is_none_or(unused)
        {
            kept.extend(self.device.take());
            self.wgsl = None;
        }
    }

    /// The live instances.
    fn instances(&self) -> Vec<Arc<Instance>> {
        let images = self.images.iter().filter_map(|(_, image)| image.upgrade());
        images.chain(self.device.clone()).collect()
    }
}

impl State {
    fn declare(
        &mut self,
        new: &Declaration,
        kept: &mut Vec<Arc<Instance>>,
    ) -> Result<(), GlobalConflict> {
        let name = new.name;
        check_size(name, new.bytes)?;
        let Some(entry) = self.entries.get_mut(name) else {
            let entry = Entry {
                host: Some(Arc::new(new.clone())),
                ..Entry::default()
            };
            self.entries.insert(name.to_owned(), entry);
            return Ok(());
        };
        if let Some(known) = &entry.host {
            return check_hosts(known, new);
        }
        entry.settle(kept);
        if let Some(wgsl) = &entry.wgsl {
            check_layouts(name, new, &wgsl.place, &wgsl.layout, true)?;
        }
        let late = |property| {
            let used_by = entry.wgsl.as_ref().map(|wgsl| wgsl.place.place.clone());
            let used_by = used_by.unwrap_or_default();
            Err(GlobalConflict::Late {
                name: name.to_owned(),
                used_by,
                property,
            })
        };
        let live = entry.instances();
        kept.extend(live.iter().cloned());
        if new.scope == GlobalScope::Image && entry.device.is_some() {
            return late("image scope");
        }
        let starts: Vec<_> = live.iter().map(|instance| lock(&instance.start)).collect();
        if new.initial.is_some() && starts.iter().any(|start| start.touched) {
            return late("an initial value");
        }
        let host = Arc::new(new.clone());
        for mut start in starts {
            start.host = Some(Arc::clone(&host));
        }
        entry.host = Some(host);
        Ok(())
    }

    fn view(
        &mut self,
        name: &str,
        kept: &mut Vec<Arc<Instance>>,
        owner: &Arc<Shared>,
    ) -> Result<HostView, GlobalConflict> {
        let Some(entry) = self.entries.get_mut(name) else {
            return Ok(HostView::Host);
        };
        if entry.scope() == GlobalScope::Image {
            entry.images.retain(|(_, image)| image.strong_count() > 0);
            let images = entry.images.iter();
            let live: Vec<_> = images
                .filter_map(|(module, image)| Some((module.name.to_string(), image.upgrade()?)))
                .collect();
            kept.extend(live.iter().map(|(_, image)| Arc::clone(image)));
            return Ok(match live.as_slice() {
                [] => HostView::Host,
                [(_, image)] => HostView::Instance(Arc::clone(image)),
                several => {
                    HostView::Several(several.iter().map(|(module, _)| module.clone()).collect())
                }
            });
        }
        if let Some(instance) = &entry.device {
            return Ok(HostView::Instance(Arc::clone(instance)));
        }
        let bytes = entry.bytes();
        let host = entry.host.clone();
        let chunk = self.chunk_for(bytes, 1, None);
        let instance = self.allocate(chunk, name, GlobalScope::Device, bytes, host, owner)?;
        if let Some(entry) = self.entries.get_mut(name) {
            entry.device = Some(Arc::clone(&instance));
        }
        Ok(HostView::Instance(instance))
    }

    fn resolve(
        &mut self,
        module: &ModuleIdentity,
        uses: &[GlobalUse],
        kept: &mut Vec<Arc<Instance>>,
        owner: &Arc<Shared>,
    ) -> Result<Vec<Arc<Instance>>, GlobalConflict> {
        let full = |one: &GlobalUse| format!("{}{}", module.prefix, one.name);
        let mut found: Vec<Option<Arc<Instance>>> = Vec::with_capacity(uses.len());
        for one in uses {
            let name = full(one);
            check_size(&name, one.layout.size.into())?;
            let Some(entry) = self.entries.get_mut(&name) else {
                found.push(None);
                continue;
            };
            entry.settle(kept);
            if let Some(wgsl) = &entry.wgsl
                && wgsl.canonical != one.canonical
            {
                return Err(GlobalConflict::Type {
                    name,
                    first: Box::new(wgsl.place.clone()),
                    second: Box::new(place_in_wgsl(module, one)),
                    why: String::new(),
                });
            }
            if let Some(host) = &entry.host {
                check_layouts(&name, host, &place_in_wgsl(module, one), &one.layout, false)?;
            }
            let instance = match entry.scope() {
                GlobalScope::Device => entry.device.clone(),
                GlobalScope::Image => {
                    let mut images = entry.images.iter();
                    images
                        .find(|(known, _)| known == module)
                        .and_then(|(_, image)| image.upgrade())
                }
            };
            kept.extend(instance.clone());
            found.push(instance);
        }
        // New variables are placed beside known ones, where possible.
        let new: Vec<u64> = (uses.iter().zip(&found))
            .filter(|(_, known)| known.is_none())
            .map(|(one, _)| u64::from(one.layout.size))
            .collect();
        let beside = found.iter().flatten().next().map(|instance| instance.chunk);
        let together: u64 = new.iter().sum();
        let chunk = match new.is_empty() || together > TOGETHER {
            true => None,
            false => Some(self.chunk_for(together, new.len(), beside)),
        };
        let mut instances = Vec::with_capacity(uses.len());
        for (one, known) in uses.iter().zip(found) {
            let name = full(one);
            let instance = match known {
                Some(instance) => instance,
                None => {
                    let entry = self.entries.get(&name);
                    let scope = entry.map_or(GlobalScope::Device, Entry::scope);
                    let host = entry.and_then(|entry| entry.host.clone());
                    let bytes = u64::from(one.layout.size);
                    let chunk = match chunk {
                        Some(chunk) => chunk,
                        None => self.chunk_for(bytes, 1, beside),
                    };
                    let made = self.allocate(chunk, &name, scope, bytes, host, owner)?;
                    kept.push(Arc::clone(&made));
                    made
                }
            };
            let entry = self.entries.entry(name).or_default();
            entry.wgsl.get_or_insert_with(|| InWgsl {
                place: place_in_wgsl(module, one),
                layout: one.layout.clone(),
                canonical: one.canonical.clone(),
            });
            match instance.scope {
                GlobalScope::Device => entry.device = Some(Arc::clone(&instance)),
                GlobalScope::Image => {
                    entry
                        .images
                        .retain(|(known, image)| known != module && image.strong_count() > 0);
                    entry
                        .images
                        .push((module.clone(), Arc::downgrade(&instance)));
                }
            }
            instances.push(instance);
        }
        Ok(instances)
    }
}
