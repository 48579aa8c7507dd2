//! The floating-point mode of a thread: rounding, and subnormal numbers.
//!
//! Kernels also run on threads of the host, which may have changed the mode. Results must not depend on the host's
//! mode.

/// While alive, floats are computed by IEEE 754: to the nearest, ties to even, with subnormal numbers.
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

/// The control bits of the register, without the status bits.
#[cfg(target_arch = "x86_64")]
fn read() -> Control {
    let mut control = 0u32;
    // SAFETY: stores the register to a variable of the same size.
    unsafe {
        std::arch::asm!("stmxcsr [{}]", in(reg) &mut control, options(nostack, preserves_flags));
    }
    control & !0x3f
}

#[cfg(target_arch = "x86_64")]
fn write(control: Control) {
    // SAFETY: loads the register with an earlier value, or with the default. Rust code must run with the default;
    // another value of this thread was set by the host, and is only put back.
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
    // SAFETY: reads a register open to every program.
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
