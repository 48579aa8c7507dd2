//! Loads, stores and atomic operations of all lanes.
//!
//! *How it works.* An access is *contiguous* if neighbouring lanes reach neighbouring words: such an access is one
//! vector for each part if the whole is in bounds and, for stores, all lanes are active; otherwise the access is done
//! lane by lane, in the order of lanes, leaving out lanes that are not active ([`contiguous`](super::contiguous)).
//! Private memory is interleaved: the words of all lanes with the same offset lie side by side, so that the same index
//! in all lanes is a contiguous access.
//!
//! ```text
//! private memory, four lanes      word 0 of lanes 0 1 2 3 | word 1 of lanes 0 1 2 3 | …
//! ```

use cranelift_codegen::ir::{self, BlockArg, InstBuilder, condcodes::IntCC, types};
use smallvec::SmallVec;

use super::{PART, Parts, contiguous::Contiguous, vector_flags, vector_type};
use crate::compile::{
    emit::{
        Emitter,
        memory::{Address, is_atomic},
    },
    error::Result,
    ir::{Access, Atomic, Base, Leaf, Place, Type},
};

/// Bytes of a word, the distance of neighbouring lanes.
pub(super) const WORD: u32 = 4;

/// Addresses of all lanes.
struct Spread {
    /// The part common to all lanes
    base: Address,
    /// Indices within bounds, 64 bits for each lane, and the factor of each index
    indices: SmallVec<[(Vec<ir::Value>, u32); 2]>,
    /// Bytes from a lane to the next, beside indices
    apart: u32,
}

impl Emitter<'_> {
    /// Whether an access must be done for each lane.
    pub(in crate::compile::emit) fn spreads(&self, place: &Place) -> bool {
        if !self.lanes.are_many() {
            return false;
        }
        matches!(place.base, Base::Slot(_))
            || place.steps.iter().any(|step| !self.is_uniform(step.index))
    }

    pub(in crate::compile::emit) fn load_lanes(
        &mut self,
        place: &Place,
        leaves: &[Leaf],
        access: Access,
    ) -> Result<()> {
        let contiguous = match access {
            Access::Plain => self.contiguous(place)?,
            Access::Atomic => Contiguous::Never,
        };
        let loaded = match contiguous {
            Contiguous::Always => self.load_vectors(place, leaves, None)?,
            Contiguous::Never => self.load_each(place, leaves, access)?,
            Contiguous::If(holds, first) => self.load_if(holds, place, leaves, first)?,
        };
        for (leaf, parts) in leaves.iter().zip(loaded) {
            self.set_vector(leaf.value, parts);
        }
        Ok(())
    }

    fn load_if(
        &mut self,
        holds: ir::Value,
        place: &Place,
        leaves: &[Leaf],
        first: Option<ir::Value>,
    ) -> Result<Vec<Parts>> {
        let whole = self.b.create_block();
        let single = self.b.create_block();
        let end = self.b.create_block();
        self.b.set_cold_block(single);
        self.b.ins().brif(holds, whole, &[], single, &[]);
        self.b.switch_to_block(whole);
        let loaded = self.load_vectors(place, leaves, first)?;
        let arguments = |loaded: &[Parts]| -> Vec<BlockArg> {
            let parts = loaded.iter().flatten();
            parts.map(|&part| BlockArg::Value(part)).collect()
        };
        let results: Vec<Parts> = loaded
            .iter()
            .map(|parts| {
                parts
                    .iter()
                    .map(|&part| {
                        let ty = self.b.func.dfg.value_type(part);
                        self.b.append_block_param(end, ty)
                    })
                    .collect()
            })
            .collect();
        self.b.ins().jump(end, &arguments(&loaded));
        self.b.switch_to_block(single);
        let loaded = self.load_each(place, leaves, Access::Plain)?;
        self.b.ins().jump(end, &arguments(&loaded));
        self.b.switch_to_block(end);
        Ok(results)
    }

    pub(in crate::compile::emit) fn store_lanes(
        &mut self,
        place: &Place,
        leaves: &[Leaf],
        access: Access,
    ) -> Result<()> {
        let contiguous = match access {
            Access::Plain => self.contiguous(place)?,
            Access::Atomic => Contiguous::Never,
        };
        let slot = matches!(place.base, Base::Slot(_));
        let holds = match (contiguous, self.are_parted()) {
            // Stores beside a limit are rare: all lanes meeting a limit store to one place.
            (Contiguous::Never | Contiguous::If(_, Some(_)), _) => {
                return self.store_each(place, leaves, access);
            }
            (Contiguous::Always, false) => return self.store_vectors(place, leaves),
            // Nobody else sees private memory: lanes that are not active keep their values.
            (Contiguous::Always, true) if slot => return self.store_vectors(place, leaves),
            (Contiguous::Always, true) => {
                let active = self.active();
                self.all(&active)
            }
            (Contiguous::If(holds, None), false) => holds,
            (Contiguous::If(holds, None), true) => {
                let active = self.active();
                let all = self.all(&active);
                self.b.ins().band(holds, all)
            }
        };
        let whole = self.b.create_block();
        let single = self.b.create_block();
        let end = self.b.create_block();
        self.b.set_cold_block(single);
        self.b.ins().brif(holds, whole, &[], single, &[]);
        self.b.switch_to_block(whole);
        self.store_vectors(place, leaves)?;
        self.b.ins().jump(end, &[]);
        self.b.switch_to_block(single);
        self.store_each(place, leaves, access)?;
        self.b.ins().jump(end, &[]);
        self.b.switch_to_block(end);
        Ok(())
    }

    /// The address of the first lane, whose varying index is `first`.
    fn first_address(&mut self, place: &Place, first: Option<ir::Value>) -> Result<Address> {
        let (mut base, apart) = self.base(place)?;
        for step in &place.steps {
            let mut index = match first.filter(|_| self.varies(step.index)) {
                Some(first) => first,
                None => self.value(step.index)?,
            };
            // For linear indices, all lanes are known to be in bounds.
            if self.is_uniform(step.index) {
                index = self.limited(step, index)?;
            }
            let offset = self.scaled(index, step.stride * apart);
            base.base = self.b.ins().iadd(base.base, offset);
        }
        Ok(base)
    }

    /// The address where a place begins, and the factor of offsets and strides there: private memory has elements of all lanes in
    /// turn.
    fn base(&mut self, place: &Place) -> Result<(Address, u32)> {
        let start = Place::new(place.base, place.offset);
        let mut address = self.address(&start)?;
        let width = match place.base {
            Base::Slot(_) => self.lanes.width,
            _ => 1,
        };
        address.offset *= width;
        Ok((address, width))
    }

    /// A leaf's address from the address of its place.
    fn leaf(&mut self, address: Address, place: &Place, offset: u32) -> Address {
        let width = match place.base {
            Base::Slot(_) => self.lanes.width,
            _ => 1,
        };
        self.displaced(address, offset * width)
    }

    fn load_vectors(
        &mut self,
        place: &Place,
        leaves: &[Leaf],
        first: Option<ir::Value>,
    ) -> Result<Vec<Parts>> {
        let address = self.first_address(place, first)?;
        let mut loaded = Vec::with_capacity(leaves.len());
        for leaf in leaves {
            let ty = self.program.ty(leaf.value);
            let at = self.leaf(address, place, leaf.offset);
            let flags = match at.constant {
                true => vector_flags().with_readonly(),
                false => vector_flags(),
            };
            let parts: Parts = (0..self.lanes.width / PART)
                .map(|part| {
                    let at = self.displaced(at, part * PART * WORD);
                    let ty = vector_type(ty);
                    self.b.ins().load(ty, flags, at.base, at.offset as i32)
                })
                .collect();
            loaded.push(self.of_words(ty, parts));
        }
        Ok(loaded)
    }

    fn store_vectors(&mut self, place: &Place, leaves: &[Leaf]) -> Result<()> {
        let address = self.first_address(place, None)?;
        let private = matches!(place.base, Base::Slot(_));
        for leaf in leaves {
            let ty = self.program.ty(leaf.value);
            let value = self.vector(leaf.value)?;
            let mut parts = self.as_words(ty, value);
            let at = self.leaf(address, place, leaf.offset);
            let places: SmallVec<[Address; 2]> = (0..self.lanes.width / PART)
                .map(|part| self.displaced(at, part * PART * WORD))
                .collect();
            if private && self.are_parted() {
                let before: Parts = places
                    .iter()
                    .map(|at| {
                        let ty = vector_type(ty);
                        (self.b.ins()).load(ty, vector_flags(), at.base, at.offset as i32)
                    })
                    .collect();
                let active = self.active();
                parts = self.blend(&active, &parts, &before);
            }
            for (&part, at) in parts.iter().zip(&places) {
                (self.b.ins()).store(vector_flags(), part, at.base, at.offset as i32);
            }
        }
        Ok(())
    }

    /// The meaning of words in memory.
    fn of_words(&mut self, ty: Type, words: Parts) -> Parts {
        if ty != Type::Bool {
            return words;
        }
        let zero = self.word(0);
        self.each(&[&words], |e, word| {
            e.b.ins().icmp(IntCC::NotEqual, word[0], zero)
        })
    }

    /// Values as words in memory.
    fn as_words(&mut self, ty: Type, parts: Parts) -> Parts {
        if ty != Type::Bool {
            return parts;
        }
        let one = self.word(1);
        self.each(&[&parts], |e, mask| e.b.ins().band(mask[0], one))
    }

    /// The data for finding the address of each lane.
    fn spread(&mut self, place: &Place) -> Result<Spread> {
        let (mut base, width) = self.base(place)?;
        let mut indices = SmallVec::new();
        for step in &place.steps {
            let stride = step.stride * width;
            if self.is_uniform(step.index) {
                let index = self.value(step.index)?;
                let index = self.limited(step, index)?;
                let offset = self.scaled(index, stride);
                base.base = self.b.ins().iadd(base.base, offset);
                continue;
            }
            let mut index = self.vector(step.index)?;
            if let Some(last) = self.last_index(step)? {
                let last = self.b.ins().splat(types::I32X4, last);
                index = self.each(&[&index], |e, index| e.b.ins().umin(index[0], last));
            }
            indices.push((self.wide_lanes(&index), stride));
        }
        let apart = match place.base {
            Base::Slot(_) => WORD,
            _ => 0,
        };
        Ok(Spread {
            base,
            indices,
            apart,
        })
    }

    /// Unsigned words of all lanes, 64 bits each. Two leave a vector at a time.
    fn wide_lanes(&mut self, parts: &Parts) -> Vec<ir::Value> {
        let mut lanes = Vec::with_capacity(self.lanes.width as usize);
        for &part in parts {
            let pairs = self.cast(types::I64X2, part);
            for half in [0, 1] {
                let pair = self.b.ins().extractlane(pairs, half);
                let low = self.b.ins().ireduce(types::I32, pair);
                lanes.push(self.b.ins().uextend(types::I64, low));
                lanes.push(self.b.ins().ushr_imm_u(pair, 32));
            }
        }
        lanes
    }

    fn address_of_lane(&mut self, spread: &Spread, lane: u32) -> Address {
        let mut address = self.displaced(spread.base, lane * spread.apart);
        for (index, stride) in &spread.indices {
            let offset = self.multiplied(index[lane as usize], *stride);
            address.base = self.b.ins().iadd(address.base, offset);
        }
        address
    }

    fn load_each(&mut self, place: &Place, leaves: &[Leaf], access: Access) -> Result<Vec<Parts>> {
        let spread = self.spread(place)?;
        // Within bounds, lanes that are not active read something, and leave the value unused.
        let guards = self.are_parted() && !self.options.checks_bounds;
        let active = if guards { self.active_bits() } else { None };
        let mut loaded = vec![Vec::new(); leaves.len()];
        for lane in 0..self.lanes.width {
            let types: Vec<_> = leaves
                .iter()
                .map(|leaf| vector_type(self.program.ty(leaf.value)).lane_type())
                .collect();
            let end = active.map(|bits| self.only_if(bits, lane, &types));
            let address = self.address_of_lane(&spread, lane);
            let words = self.load_words(place, address, leaves, access);
            let words = match end {
                None => words,
                Some(end) => {
                    let words: Vec<_> = words.into_iter().map(BlockArg::Value).collect();
                    self.b.ins().jump(end, &words);
                    self.b.switch_to_block(end);
                    self.b.block_params(end).to_vec()
                }
            };
            for (loaded, word) in loaded.iter_mut().zip(words) {
                loaded.push(word);
            }
        }
        Ok(leaves
            .iter()
            .zip(loaded)
            .map(|(leaf, lanes)| {
                let ty = self.program.ty(leaf.value);
                let parts = self.gathered(ty, &lanes);
                self.of_words(ty, parts)
            })
            .collect())
    }

    /// Loads the scalars of one lane; booleans as their words.
    fn load_words(
        &mut self,
        place: &Place,
        address: Address,
        leaves: &[Leaf],
        access: Access,
    ) -> Vec<ir::Value> {
        leaves
            .iter()
            .map(|leaf| {
                let ty = self.program.ty(leaf.value);
                let at = self.leaf(address, place, leaf.offset);
                match (access, ty) {
                    (Access::Atomic, ty) if is_atomic(ty) => self.load_atomic(ty, at),
                    (_, Type::Bool) => self.load_scalar(Type::I32, at),
                    _ => self.load_scalar(ty, at),
                }
            })
            .collect()
    }

    fn store_each(&mut self, place: &Place, leaves: &[Leaf], access: Access) -> Result<()> {
        let spread = self.spread(place)?;
        let mut values = Vec::with_capacity(leaves.len());
        for leaf in leaves {
            values.push(if self.is_uniform(leaf.value) {
                None
            } else {
                Some(self.vector(leaf.value)?)
            });
        }
        self.for_each_active(|e, lane| {
            let address = e.address_of_lane(&spread, lane);
            for (leaf, value) in leaves.iter().zip(&values) {
                let ty = e.program.ty(leaf.value);
                let at = e.leaf(address, place, leaf.offset);
                let value = match value {
                    None => e.value(leaf.value)?,
                    Some(_) => e.value_of_lane(leaf.value, lane)?,
                };
                match access {
                    Access::Atomic if is_atomic(ty) => e.store_atomic(ty, value, at),
                    _ => e.store_scalar(ty, value, at),
                }
            }
            Ok(())
        })
    }

    /// An atomic operation of each active lane, one after the other. Nobody uses the results.
    pub(in crate::compile::emit) fn atomic_lanes(&mut self, atomic: &Atomic) -> Result<()> {
        let spread = self.spread(&atomic.place)?;
        self.for_each_active(|e, lane| {
            let address = e.address_of_lane(&spread, lane);
            let address = e.whole(address);
            let value = e.value_of_lane(atomic.value, lane)?;
            let compare = match atomic.compare {
                Some(compare) => Some(e.value_of_lane(compare, lane)?),
                None => None,
            };
            e.atomic_at(atomic, address, value, compare)?;
            Ok(())
        })
    }

    /// Emits code for each lane, run only if the lane is active.
    fn for_each_active(&mut self, mut f: impl FnMut(&mut Self, u32) -> Result<()>) -> Result<()> {
        let active = self.active_bits();
        for lane in 0..self.lanes.width {
            let end = active.map(|bits| self.only_if(bits, lane, &[]));
            f(self, lane)?;
            if let Some(end) = end {
                self.b.ins().jump(end, &[]);
                self.b.switch_to_block(end);
            }
        }
        Ok(())
    }

    /// A bit for each active lane; `None` if all are active.
    pub(super) fn active_bits(&mut self) -> Option<ir::Value> {
        if !self.are_parted() {
            return None;
        }
        let active = self.active();
        let mut bits = None;
        for (index, &part) in active.iter().enumerate() {
            let part = self.b.ins().vhigh_bits(types::I32, part);
            bits = Some(match bits {
                None => part,
                Some(bits) => {
                    let part = (self.b.ins()).ishl_imm_u(part, i64::from(PART) * index as i64);
                    self.b.ins().bor(bits, part)
                }
            });
        }
        bits
    }

    /// Begins work of a lane to be done only if the lane's bit is set, and returns the end of the work, with results of
    /// zero otherwise.
    fn only_if(&mut self, bits: ir::Value, lane: u32, results: &[ir::Type]) -> ir::Block {
        let start = self.b.create_block();
        let end = self.b.create_block();
        let mut zeros = Vec::with_capacity(results.len());
        for &ty in results {
            self.b.append_block_param(end, ty);
            let zero = match ty {
                types::F32 => self.b.ins().f32const(0.0),
                _ => self.b.ins().iconst(types::I32, 0),
            };
            zeros.push(BlockArg::Value(zero));
        }
        let bit = self.b.ins().band_imm_u(bits, 1 << lane);
        self.b.ins().brif(bit, start, &[], end, &zeros);
        self.b.switch_to_block(start);
        end
    }
}
