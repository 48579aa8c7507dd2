//! How a thread computes with floats: rounding, and what becomes of numbers close to zero.
//!
//! Kernels also run on threads of the host, which may have changed this. Results must not depend on it.

/// While it lives, floats are computed as IEEE 754 says: to the nearest, ties to even, with subnormal numbers.
pub(super) struct Exact {
    before: Control,
}

impl Exact {
    pub(super) fn enter() -> Self {
        let before = read();
        if before != DEFAULT {
            write(DEFAULT);
        }
        Self { before }
    }
}

impl Drop for Exact {
    fn drop(&mut self) {
        if self.before != DEFAULT {
            write(self.before);
        }
    }
}

#[cfg(target_arch = "x86_64")]
type Control = u32;
/// Exceptions masked, to the nearest, nothing flushed to zero.
#[cfg(target_arch = "x86_64")]
const DEFAULT: Control = 0x1f80;

/// The bits that say how to compute, without those that say what has happened.
#[cfg(target_arch = "x86_64")]
fn read() -> Control {
    let mut control = 0u32;
    // SAFETY: stores the register to a variable of its size.
    unsafe {
        std::arch::asm!("stmxcsr [{}]", in(reg) &mut control, options(nostack, preserves_flags));
    }
    control & !0x3f
}

#[cfg(target_arch = "x86_64")]
fn write(control: Control) {
    // SAFETY: loads the register with a value that it had, or with its default. Rust code is not to run with another than
    // the default; what this thread had before it came here is its own matter, and is put back.
    unsafe {
        std::arch::asm!("ldmxcsr [{}]", in(reg) &control, options(nostack, preserves_flags));
    }
}

#[cfg(target_arch = "aarch64")]
type Control = u64;
#[cfg(target_arch = "aarch64")]
const DEFAULT: Control = 0;

#[cfg(target_arch = "aarch64")]
fn read() -> Control {
    let control: u64;
    // SAFETY: reads a register that every program may read.
    unsafe {
        std::arch::asm!("mrs {}, fpcr", out(reg) control, options(nomem, nostack, preserves_flags));
    }
    control
}

#[cfg(target_arch = "aarch64")]
fn write(control: Control) {
    // SAFETY: as on x86-64.
    unsafe {
        std::arch::asm!("msr fpcr, {}", in(reg) control, options(nomem, nostack, preserves_flags));
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
type Control = ();
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const DEFAULT: Control = ();
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn read() -> Control {}
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn write(_control: Control) {}
