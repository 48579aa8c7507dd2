//! Lanes for counting operations, without computing.

use super::lanes::{Lanes, Lanes32, Rare};
use std::cell::Cell;

/// Counts the operations of functions run on these lanes; constants are free.
///
/// Wide operations count once here and in [`wide`](Self::wide_operations) too: a vector unit runs each of them twice.
#[derive(Debug, Default)]
pub struct Cost {
    operations: Cell<u32>,
    wide: Cell<u32>,
}

impl Cost {
    /// All operations so far.
    pub fn operations(&self) -> u32 {
        self.operations.get()
    }
    /// Operations on binary64 numbers so far.
    pub fn wide_operations(&self) -> u32 {
        self.wide.get()
    }
    fn one(&self) {
        self.operations.set(self.operations.get() + 1);
    }
    fn one_wide(&self) {
        self.one();
        self.wide.set(self.wide.get() + 1);
    }
}

macro_rules! count {
    ($($count:ident: $($name:ident($($argument:ident),*)),*;)*) => {$($(
        fn $name(&self, $($argument: ()),*) {
            $(let () = $argument;)*
            self.$count();
        }
    )*)*};
}

impl Lanes for Cost {
    type Float = ();
    type Int = ();
    type Mask = ();
    const BITS: u32 = 32;

    fn float(&self, _: f64) {}
    fn int(&self, _: i64) {}
    count! {
        one: fadd(a, b), fsub(a, b), fmul(a, b), fdiv(a, b), sqrt(a), fmin(a, b), fmax(a, b),
            flt(a, b), fle(a, b), feq(a, b), fselect(mask, a, b),
            iadd(a, b), isub(a, b), imul(a, b), band(a, b), bor(a, b), bxor(a, b),
            ishl_each(a, b), ushr_each(a, b), sshr_each(a, b),
            ieq(a, b), slt(a, b), iselect(mask, a, b),
            mask_and(a, b), mask_or(a, b), mask_not(a), to_int(a), from_int(a);
    }
    fn ishl(&self, _: (), _: u32) {
        self.one();
    }
    fn ushr(&self, _: (), _: u32) {
        self.one();
    }
    fn sshr(&self, _: (), _: u32) {
        self.one();
    }
    fn to_bits(&self, _: ()) {}
    fn from_bits(&self, _: ()) {}
}

impl Lanes32 for Cost {
    type Wide = ();

    fn wide(&self, _: f64) {}
    count! {
        one_wide: widen(a), narrow(a), wadd(a, b), wsub(a, b), wmul(a, b), wdiv(a, b),
            wide_from_halves(low, high);
        one: low_half(a);
    }
    fn rare(&self, (): (), (): (), (): (), _: Rare) {
        self.one();
    }
}
