//! Pointers shared by Rust and WGSL: a 64-bit address, valid on both sides.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;

use bytemuck::{Pod, Zeroable};

/// The address of a `T` in a [`SharedHeap`](crate::SharedHeap): 8 bytes, aligned to 8, to be embedded
/// in structures that host and kernels share. In WGSL its type is `usm_ptr`, a `vec2<u32>` with the low
/// word first.
///
/// A pointer is a value like any other: possibly null, stale, or made up. A pointer is checked on
/// resolution, by [`HostAccess`](crate::heap::HostAccess) on the host and by kernels in checked mode.
///
/// | bits 63..48 | the pointer is |
/// | --- | --- |
/// | 0, and the value 0 | null |
/// | 0 | shared: the host address itself |
/// | not 0 | a device's own memory |
#[repr(transparent)]
pub struct Ptr<T> {
    address: u64,
    target: PhantomData<fn() -> T>,
}

/// The kind in a pointer's bits; see [`Ptr`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PointerKind {
    /// The null pointer.
    Null,
    /// An address in the host's address space.
    Shared,
    /// An address in a device's own memory.
    Device,
}

// SAFETY: the all-zero pattern is the null pointer, and `PhantomData` has no bytes.
#[allow(unsafe_code)]
unsafe impl<T> Zeroable for Ptr<T> {}
// SAFETY: transparent over a `u64`, of which every pattern is a valid pointer value; nothing is
// borrowed, since `PhantomData<fn() -> T>` holds no `T`.
#[allow(unsafe_code)]
unsafe impl<T: 'static> Pod for Ptr<T> {}

impl<T> Ptr<T> {
    /// The pointer to nothing.
    pub const fn null() -> Self {
        Self::from_address(0)
    }

    /// A pointer with this address, without any check.
    pub const fn from_address(address: u64) -> Self {
        Self {
            address,
            target: PhantomData,
        }
    }

    /// The 64 bits of the pointer.
    pub const fn address(self) -> u64 {
        self.address
    }

    /// True for the null pointer.
    pub const fn is_null(self) -> bool {
        self.address == 0
    }

    /// The kind in the pointer's bits.
    pub const fn kind(self) -> PointerKind {
        match (self.address, self.address >> 48) {
            (0, _) => PointerKind::Null,
            (_, 0) => PointerKind::Shared,
            _ => PointerKind::Device,
        }
    }

    /// The same address, as a pointer to another type.
    pub const fn cast<U>(self) -> Ptr<U> {
        Ptr::from_address(self.address)
    }

    /// The pointer `bytes` further on; wraps around like the address it is.
    pub const fn byte_add(self, bytes: u64) -> Self {
        Self::from_address(self.address.wrapping_add(bytes))
    }

    /// The pointer `count` values of `T` further on.
    pub const fn add(self, count: u64) -> Self {
        self.byte_add(count.wrapping_mul(size_of::<T>() as u64))
    }
}

impl<T> Clone for Ptr<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Ptr<T> {}

impl<T> Default for Ptr<T> {
    fn default() -> Self {
        Self::null()
    }
}

impl<T> PartialEq for Ptr<T> {
    fn eq(&self, other: &Self) -> bool {
        self.address == other.address
    }
}

impl<T> Eq for Ptr<T> {}

impl<T> Hash for Ptr<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.address.hash(state);
    }
}

impl<T> fmt::Debug for Ptr<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ptr({:#x})", self.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, Copy, Pod, Zeroable)]
    #[repr(C)]
    struct Node {
        value: f32,
        padding: u32,
        next: Ptr<Node>,
    }

    #[test]
    fn pointers_are_eight_bytes_and_may_be_recursive() {
        assert_eq!((size_of::<Ptr<Node>>(), align_of::<Ptr<Node>>()), (8, 8));
        assert_eq!(size_of::<Node>(), 16);
        let node = Node {
            value: 1.0,
            padding: 0,
            next: Ptr::from_address(0x1234_5678_9abc),
        };
        let words: [u32; 4] = bytemuck::cast(node);
        // Low word first, as in `vec2<u32>`.
        assert_eq!(&words[2..], [0x5678_9abc, 0x1234]);
    }

    #[test]
    fn kinds_are_read_from_the_upper_bits() {
        assert_eq!(Ptr::<u8>::null().kind(), PointerKind::Null);
        assert_eq!(Ptr::<u8>::from_address(1).kind(), PointerKind::Shared);
        let highest = Ptr::<u8>::from_address((1 << 48) - 1);
        assert_eq!(highest.kind(), PointerKind::Shared);
        assert_eq!(highest.byte_add(1).kind(), PointerKind::Device);
        assert_eq!(
            Ptr::<u8>::from_address(u64::MAX).kind(),
            PointerKind::Device
        );
    }

    #[test]
    fn arithmetic_counts_values_or_bytes() {
        let p = Ptr::<[u32; 3]>::from_address(100);
        assert_eq!(p.add(2).address(), 124);
        assert_eq!(p.byte_add(2).cast::<u8>().address(), 102);
        assert_eq!(p.add(u64::MAX).address(), 88);
    }
}
