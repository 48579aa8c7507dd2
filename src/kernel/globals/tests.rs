//! The database against a model: declarations, modules and their ends in any order, and by many threads.

use std::collections::HashMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::table::GlobalTable;
use super::{
    Declaration, GlobalAccess, GlobalConflict, GlobalScope, GlobalUse, HostView, InitMode,
    Instance, ModuleIdentity,
};
use crate::kernel::layout::{Shape, TypeLayout};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const SIZES: [u32; 4] = [4, 12, 200, 150_000];

fn a_use(name: &str, size: u32) -> GlobalUse {
    let wgsl = format!("bytes<{size}>");
    GlobalUse {
        name: name.into(),
        writable: true,
        layout: TypeLayout {
            wgsl: wgsl.clone(),
            size,
            align: 4,
            shape: Shape::Plain,
            scalar: None,
        },
        canonical: wgsl,
        number: 0,
        place: Some(("a.wgsl".into(), 3)),
    }
}

fn module(number: usize) -> ModuleIdentity {
    ModuleIdentity {
        name: format!("module{number}.wgsl").into(),
        source: "".into(),
        prefix: "".into(),
    }
}

fn declaration(name: &'static str, size: u32, scope: GlobalScope) -> Declaration {
    Declaration {
        name,
        type_name: "T",
        bytes: size.into(),
        layout: None,
        scope,
        access: GlobalAccess::ReadWrite,
        init: InitMode::Reset,
        initial: None,
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// The host declares a name, or asks where it is.
    Declare {
        name: usize,
        size: usize,
        image: bool,
    },
    Look {
        name: usize,
        size: usize,
        image: bool,
    },
    /// A kernel of a module is made.
    Make {
        module: usize,
        uses: Vec<(usize, usize)>,
    },
    /// The last kernels of a module go.
    Drop { module: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Mostly the size that goes with the name, so not everything is a conflict.
    let size = |name: usize| prop_oneof![9 => Just(name), 1 => 0usize..4];
    let named = (0usize..4).prop_flat_map(move |name| (Just(name), size(name)));
    let step = prop_oneof![
        (named.clone(), any::<bool>()).prop_map(|((name, size), image)| Step::Declare {
            name,
            size,
            image
        }),
        (named.clone(), any::<bool>()).prop_map(|((name, size), image)| Step::Look {
            name,
            size,
            image
        }),
        (0usize..3, prop::collection::vec(named, 1..4))
            .prop_map(|(module, uses)| Step::Make { module, uses }),
        (0usize..3).prop_map(|module| Step::Drop { module }),
    ];
    prop::collection::vec(step, 1..60)
}

/// What the model knows of a name.
#[derive(Debug, Clone, Default)]
struct Model {
    host: Option<(u32, bool)>,
    wgsl: Option<u32>,
    /// The identity of the instance of the device, and of those of modules.
    device: Option<u64>,
    images: HashMap<usize, u64>,
}

impl Model {
    fn declare(&mut self, size: u32, image: bool) -> bool {
        match self.host {
            Some(known) => known == (size, image),
            None if self.wgsl.is_some_and(|known| known != size) => false,
            None if image && self.device.is_some() => false,
            None => {
                self.host = Some((size, image));
                true
            }
        }
    }

    fn is_image(&self) -> bool {
        self.host.is_some_and(|(_, image)| image)
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_table_agrees_with_a_model(steps in steps()) {
        let table = GlobalTable::default();
        let mut models: Vec<Model> = vec![Model::default(); 4];
        let mut kernels: HashMap<usize, Vec<Arc<Instance>>> = HashMap::new();
        let mut of_devices: HashMap<u64, Arc<Instance>> = HashMap::new();
        for step in steps {
            match step {
                Step::Declare { name, size, image } => {
                    let scope = if image { GlobalScope::Image } else { GlobalScope::Device };
                    let result = table.declare(&declaration(NAMES[name], SIZES[size], scope));
                    prop_assert_eq!(result.is_ok(), models[name].declare(SIZES[size], image));
                }
                Step::Look { name, size, image } => {
                    let scope = if image { GlobalScope::Image } else { GlobalScope::Device };
                    let result = table.host_view(&declaration(NAMES[name], SIZES[size], scope));
                    let model = &mut models[name];
                    let fits = model.declare(SIZES[size], image);
                    prop_assert_eq!(result.is_ok(), fits);
                    match result {
                        Err(_) => {}
                        Ok(HostView::Host) => prop_assert!(image && model.images.is_empty()),
                        Ok(HostView::Several(modules)) => {
                            prop_assert!(image);
                            prop_assert_eq!(modules.len(), model.images.len());
                            prop_assert!(modules.len() > 1);
                        }
                        Ok(HostView::Instance(instance)) if image => {
                            let known: Vec<u64> = model.images.values().copied().collect();
                            prop_assert_eq!(known, vec![instance.id]);
                        }
                        Ok(HostView::Instance(instance)) => {
                            prop_assert_eq!(*model.device.get_or_insert(instance.id), instance.id);
                            of_devices.insert(instance.id, instance);
                        }
                    }
                }
                Step::Make { module: number, mut uses } => {
                    uses.sort_unstable();
                    uses.dedup_by_key(|(name, _)| *name);
                    let fits = uses.iter().all(|&(name, size)| {
                        let (model, size) = (&models[name], SIZES[size]);
                        let host = model.host.is_none_or(|(known, _)| known == size);
                        host && model.wgsl.is_none_or(|known| known == size)
                    });
                    let wanted: Vec<_> =
                        uses.iter().map(|&(name, size)| a_use(NAMES[name], SIZES[size])).collect();
                    let result = table.resolve(&module(number), &wanted);
                    prop_assert_eq!(result.is_ok(), fits);
                    let Ok(instances) = result else { continue };
                    for (&(name, size), instance) in uses.iter().zip(&instances) {
                        let model = &mut models[name];
                        model.wgsl = Some(SIZES[size]);
                        prop_assert_eq!(&*instance.name, NAMES[name]);
                        prop_assert_eq!(instance.bytes, u64::from(SIZES[size]));
                        let known = match model.is_image() {
                            true => *model.images.entry(number).or_insert(instance.id),
                            false => *model.device.get_or_insert(instance.id),
                        };
                        prop_assert_eq!(known, instance.id);
                        if !model.is_image() {
                            of_devices.insert(instance.id, Arc::clone(instance));
                        }
                    }
                    kernels.entry(number).or_default().extend(instances);
                }
                Step::Drop { module } => {
                    kernels.remove(&module);
                    models.iter_mut().for_each(|model| { model.images.remove(&module); });
                }
            }
            // No two variables share a byte, none lies beyond its chunk, and a removed variable takes no room.
            let mut live: HashMap<u64, Arc<Instance>> = of_devices.clone();
            for instance in kernels.values().flatten() {
                live.insert(instance.id, Arc::clone(instance));
            }
            let mut ranges: Vec<_> = live
                .values()
                .map(|one| (one.chunk, u64::from(one.offset), u64::from(one.offset) + one.bytes))
                .collect();
            ranges.sort_unstable();
            for pair in ranges.windows(2) {
                prop_assert!(pair[0].0 != pair[1].0 || pair[0].2 <= pair[1].1, "{:?}", pair);
            }
            for &(chunk, start, end) in &ranges {
                prop_assert!(start >= 256 && start % 16 == 0 && end <= table.chunk_bytes(chunk));
            }
            let bytes: u64 = live.values().map(|one| one.bytes.next_multiple_of(16)).sum();
            prop_assert_eq!(table.bytes_in_use(), bytes);
        }
    }
}

#[test]
fn variables_of_one_kernel_lie_together_where_they_can() {
    let table = GlobalTable::default();
    let fill = table
        .resolve(&module(0), &[a_use("fill", 200_000)])
        .unwrap();
    let both = [a_use("x", 40_000), a_use("y", 40_000)];
    let together = table.resolve(&module(1), &both).unwrap();
    assert_eq!(together[0].chunk, together[1].chunk);
    assert_ne!(together[0].chunk, fill[0].chunk);
    // A small variable goes where there is room, and beside the variables used with it.
    let small = table.resolve(&module(2), &[a_use("small", 8)]).unwrap();
    assert_eq!(small[0].chunk, fill[0].chunk);
    let mixed = [a_use("y", 40_000), a_use("other", 8)];
    let beside = table.resolve(&module(3), &mixed).unwrap();
    assert_eq!(beside[1].chunk, together[0].chunk);
}

#[test]
fn a_refused_kernel_leaves_nothing_behind() {
    let table = GlobalTable::default();
    let _known = table.resolve(&module(0), &[a_use("known", 8)]).unwrap();
    let (bytes, names) = (table.bytes_in_use(), table.names());
    let uses = [a_use("new", 64), a_use("known", 12)];
    let error = table.resolve(&module(1), &uses).unwrap_err();
    let GlobalConflict::Type { first, second, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!((first.place.as_str(), first.bytes), ("a.wgsl:3", 8));
    assert_eq!((second.place.as_str(), second.bytes), ("a.wgsl:3", 12));
    assert_eq!((table.bytes_in_use(), table.names()), (bytes, names));
}

#[test]
fn a_kernel_that_was_never_used_leaves_its_names_to_others() {
    let table = GlobalTable::default();
    drop(table.resolve(&module(0), &[a_use("name", 8)]).unwrap());
    let other = table.resolve(&module(1), &[a_use("name", 12)]).unwrap();
    assert_eq!(table.bytes_in_use(), 16);
    // A variable known to a device stays.
    other[0].touch();
    let id = other[0].id;
    drop(other);
    assert!(table.resolve(&module(2), &[a_use("name", 8)]).is_err());
    let again = table.resolve(&module(2), &[a_use("name", 12)]).unwrap();
    assert_eq!(again[0].id, id);
}

#[test]
fn threads_agree_on_one_place_for_each_name() {
    let table = GlobalTable::default();
    let names: Vec<String> = (0..40).map(|number| format!("name{number}")).collect();
    let places: Vec<HashMap<String, u64>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                let (table, names) = (&table, &names);
                scope.spawn(move || {
                    let mut seen = HashMap::new();
                    for round in 0..20 {
                        let first = (thread * 5 + round * 7) % names.len();
                        let uses: Vec<_> = (0..4)
                            .map(|step| a_use(&names[(first + step * 3) % names.len()], 20))
                            .collect();
                        for one in table.resolve(&module(thread), &uses).unwrap() {
                            // As the first launch on a device does.
                            one.touch();
                            let known = *seen.entry(one.name.to_string()).or_insert(one.id);
                            assert_eq!(known, one.id);
                        }
                        let view = table.host_view(&declaration("host", 4, GlobalScope::Device));
                        let HostView::Instance(one) = view.unwrap() else {
                            panic!("an instance");
                        };
                        seen.insert("host".into(), one.id);
                    }
                    seen
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let mut all: HashMap<&str, u64> = HashMap::new();
    for (name, id) in places.iter().flatten() {
        assert_eq!(*all.entry(name).or_insert(*id), *id, "{name}");
    }
}

#[test]
fn variables_beyond_the_largest_offset_are_refused() {
    let table = GlobalTable::default();
    let (most, bytes) = ((4u64 << 30) - (64 << 10), 1u64 << 32);
    let is_told = |error: GlobalConflict| {
        let GlobalConflict::TooLarge { name, bytes, limit } = &error else {
            panic!("{error}");
        };
        assert_eq!(name, "large");
        (*bytes, *limit)
    };
    let large = Declaration {
        bytes,
        ..declaration("large", 4, GlobalScope::Device)
    };
    let error = table.declare(&large).unwrap_err();
    assert_eq!(is_told(error), (bytes, most));
    let uses = [a_use("large", u32::MAX)];
    let error = table.resolve(&module(0), &uses).unwrap_err();
    assert_eq!(is_told(error), (u64::from(u32::MAX), most));
    assert!(table.names().is_empty());
    assert_eq!(table.bytes_in_use(), 0);
}
