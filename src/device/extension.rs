//! Extension slots: values of higher modules for each device (caches, pools), without the device knowing the types.
//! Such values must die with the device, and dependencies must go on pointing downwards.

use std::any::Any;
use std::sync::OnceLock;

/// A slot for a value of a type known only to the user of the slot.
#[derive(Debug, Default)]
pub(crate) struct ExtensionSlot(OnceLock<Box<dyn Any + Send + Sync>>);

impl ExtensionSlot {
    /// The value, made on first use. Each slot is asked for one type only.
    pub(crate) fn get<T: Default + Send + Sync + 'static>(&self) -> &T {
        let value = self.0.get_or_init(|| Box::new(T::default()));
        // Every field of this type has a single caller, which names a single `T`.
        value.downcast_ref().expect("a slot holds one type")
    }
}
