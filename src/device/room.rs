//! What the rooms above keep for each device (caches, pools), without the device knowing what it is:
//! it must die with the device, and dependencies must go on pointing downwards.

use std::any::Any;
use std::sync::OnceLock;

/// A place for one value of a type that only its user knows.
#[derive(Debug, Default)]
pub(crate) struct Room(OnceLock<Box<dyn Any + Send + Sync>>);

impl Room {
    /// The value, made when it is first asked for. Each room is asked for one type only.
    pub(crate) fn get<T: Default + Send + Sync + 'static>(&self) -> &T {
        let value = self.0.get_or_init(|| Box::new(T::default()));
        // Every field of this type has a single caller, which names a single `T`.
        value.downcast_ref().expect("a room holds one type")
    }
}
