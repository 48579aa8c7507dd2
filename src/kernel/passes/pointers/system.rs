//! System allocations: pointers as addresses of the host's memory, translated at each access by the functions of
//! `shaders/system.wgsl`.
//!
//! *How it works.*
//!
//! 1. A pointer stays its address: a place is low word, high word and a constant offset ([`Base::Address`]). Objects may
//!    straddle pages, so nothing is translated earlier than at an access.
//! 2. An access of one to four words, the most of a vector, calls `tombolo_system_find` once: vectors are aligned, and
//!    none straddles a page. The function returns an index into the pool of frames, or the index of otherwise unused
//!    words where the address may not be touched, so accesses themselves have no branch.
//! 3. The translation of a pointee of fixed size is kept for its other accesses: see `hoist`.
//! 4. The first fault of an invocation is noted with its site; from then on every value read by the invocation may be a
//!    zero in place of another value. So loops end at their next turn: a loop waiting for a value read behind such a
//!    zero might run for ever. Loops in which invocations meet are left alone, since the others would miss a leaving
//!    invocation.
//!
//! Where frames are filled while the kernel runs, a miss is no fault: the invocation waits for the host
//! (`shaders/system_live.wgsl`). Where the host gives frames to other pages meanwhile, words are loaded by a function
//! checking that the words were the page's (`shaders/system_evict.wgsl`).
//!
//! The functions are parsed once for each kernel and moved into its module, names and bindings made the runtime's own.

use naga::{
    Arena, BinaryOperator as Op, Block, Expression, Function, GlobalVariable, Handle, Module, Span,
    Statement,
};

use super::super::status::status_global;
use super::super::transplant::Mover;
use super::super::{turns, unique_name};
use super::builder::{Builder, Value};
use super::heap::Heap;
use super::hoist::Keeper;
use super::options::site_code;
use super::options::{
    HeapElement, HeapMemory, Hoists, LivePlaces, PointerError, PointerErrorKind, PointerOptions,
    WRITE_BIT,
};
use super::place::{Base, Place, Root};
use super::rewrite::Rewriter;
use crate::addresses::live_posts::{LIVE_FACTORS, LIVE_LOCKS, LIVE_POSTS};
use crate::device::fence;
use crate::kernel::passes::code::Emitter;
use crate::template::Template;

const TEXT: &str = include_str!("../../../../shaders/system.wgsl");
const THERE: &str = include_str!("../../../../shaders/system_there.wgsl");
const LIVE: &str = include_str!("../../../../shaders/system_live.wgsl");
const STAY: &str = include_str!("../../../../shaders/system_stay.wgsl");
const EVICT: &str = include_str!("../../../../shaders/system_evict.wgsl");
const ONCE: &str = include_str!("../../../../shaders/system_once.wgsl");
const ONCE_EVICT: &str = include_str!("../../../../shaders/system_once_evict.wgsl");
const PAGES: &str = include_str!("../../../../shaders/system_pages.wgsl");
const FREE: &str = include_str!("../../../../shaders/system_free.wgsl");
const RATIONED: &str = include_str!("../../../../shaders/system_rationed.wgsl");
const FENCE: &str = "tombolo_system_fence";

/// Variables of calls counting the same turns, where a kernel calls as well.
const SHARED: [(&str, &str); 2] = [
    ("tombolo_system_group_turns", "tombolo_call_group_turns"),
    ("tombolo_system_group", "tombolo_call_group"),
];

/// The functions and variables of `shaders/system.wgsl` in a kernel's module.
#[derive(Clone, Copy, Debug)]
pub(super) struct System {
    /// From an address to a word of the pool.
    find: Handle<Function>,
    /// From an address to the words there, where a frame may be given to another page before the load.
    load: Option<Handle<Function>>,
    /// The same where the translation of a pointee is kept; with the words in `loaded`.
    once: Option<Once>,
    /// The same where the pages of a pointee are looked up ahead.
    pages: Option<Pages>,
    /// From an address and an index to an address.
    step: Handle<Function>,
    /// Not zero once the invocation has met with a fault.
    failed: Handle<GlobalVariable>,
}

/// The functions of accesses with a kept translation.
#[derive(Clone, Copy, Debug)]
struct Once {
    find: Handle<Function>,
    load: Option<(Handle<Function>, Handle<GlobalVariable>)>,
}

/// The functions of pointees whose pages are looked up where the pointer is made.
#[derive(Clone, Copy, Debug)]
struct Pages {
    /// From an address to what is known of the pages.
    read: Handle<Function>,
    /// The same for a written pointee.
    written: Handle<Function>,
    /// From an access and what is known to a word of the pool.
    part: Handle<Function>,
    /// Writes the fault noted by accesses, if any.
    note: Handle<Function>,
}

/// Adds the functions to `functions`, and their variables to `module`; `None` where pointers lead into the heap.
pub(super) fn add(
    module: &mut Module,
    functions: &mut Arena<Function>,
    heap: &Heap,
    options: &PointerOptions,
    hoists: Hoists,
) -> Result<Option<System>, PointerError> {
    let HeapMemory::System {
        table,
        faults,
        status,
        live,
        ..
    } = options.memory
    else {
        return Ok(None);
    };
    let broken = |message: String| PointerError {
        kind: PointerErrorKind::Type(message),
        span: Span::UNDEFINED,
        function: None,
    };
    let text = naga::front::wgsl::parse_str(&text_of(live, heap.element, hoists));
    let mut text = text.map_err(|error| broken(error.to_string()))?;
    if live.is_some_and(|live| live.barriers) {
        fence::fill(&mut text, FENCE);
    }
    let shared = |module: &Module, name: &str| {
        let (_, other) = SHARED.iter().find(|(own, _)| *own == name)?;
        let mut variables = module.global_variables.iter();
        let found = variables.find(|(_, v)| v.name.as_deref() == Some(other));
        found.map(|(handle, _)| handle)
    };
    let mut mover = Mover::of(&text);
    for (handle, variable) in text.global_variables.iter() {
        let name = variable.name.as_deref().unwrap_or_default();
        let moved = match (name, heap.invocation) {
            ("tombolo_system_invocation", Some(invocation)) => invocation,
            ("tombolo_system_status", _) => status_global(module, status),
            ("tombolo_system_table", _) => mover.variable(module, variable, Some(table)),
            ("tombolo_system_faults", _) => mover.variable(module, variable, Some(faults)),
            ("tombolo_system_pool", _) => match heap.variables.first() {
                Some(pool) => *pool,
                None => return Err(broken("the pool is missing".into())),
            },
            ("tombolo_system_places", _) => {
                mover.variable(module, variable, live.map(|live| live.places))
            }
            ("tombolo_system_backoff", _) => {
                mover.variable(module, variable, live.and_then(|live| live.backoff))
            }
            _ => match shared(module, name) {
                Some(other) => other,
                None => mover.variable(module, variable, None),
            },
        };
        mover.globals.insert(handle, moved);
    }
    for (handle, function) in text.functions.iter() {
        let name = unique_name(module, function.name.as_deref().unwrap_or("tombolo_system"));
        let moved = mover.function(module, function, name);
        let moved = functions.append(moved, Span::UNDEFINED);
        mover.functions.insert(handle, moved);
    }
    let function = |name: &str| {
        let mut all = text.functions.iter();
        let found = all.find(|(_, f)| f.name.as_deref() == Some(name));
        found.and_then(|(handle, _)| mover.functions.get(&handle).copied())
    };
    let variable = |name: &str| {
        let mut all = text.global_variables.iter();
        let found = all.find(|(_, v)| v.name.as_deref() == Some(name));
        found.and_then(|(handle, _)| mover.globals.get(&handle).copied())
    };
    let found = (function("tombolo_system_find"))
        .zip(function("tombolo_system_step"))
        .zip(variable("tombolo_system_failed"));
    let ((find, step), failed) =
        found.ok_or_else(|| broken("the functions of shaders/system.wgsl are missing".into()))?;
    Ok(Some(System {
        find,
        load: function("tombolo_system_load"),
        once: function("tombolo_system_find_once").map(|find| Once {
            find,
            load: function("tombolo_system_load_once").zip(variable("tombolo_system_loaded")),
        }),
        pages: (function("tombolo_system_pages"))
            .zip(function("tombolo_system_pages_written"))
            .zip(function("tombolo_system_part").zip(function("tombolo_system_write_note")))
            .map(|((read, written), (part, note))| Pages {
                read,
                written,
                part,
                note,
            }),
        step,
        failed,
    }))
}

/// The text of the functions, for frames that are filled before the launch, or while the kernel runs.
fn text_of(live: Option<LivePlaces>, element: HeapElement, hoists: Hoists) -> String {
    let (once, found) = match hoists {
        Hoists::First => (ONCE, "tombolo_system_rights = entry.w;"),
        Hoists::Pages => (PAGES, ""),
        Hoists::Nothing => ("", ""),
    };
    let text = Template::new(TEXT).set("found", found).fill();
    let Some(live) = live else {
        return [&text, once, THERE].concat();
    };
    let turns = match live.backoff {
        Some(_) => RATIONED,
        None => FREE,
    };
    let frames = match live.evicts {
        true => evicting(element, live.barriers, hoists == Hoists::First),
        false => STAY.to_owned(),
    };
    let [upper, both] = LIVE_FACTORS;
    let live = Template::new(LIVE)
        .set("upper", format!("{upper:#x}u"))
        .set("both", format!("{both:#x}u"))
        .set("shift", format!("{}u", 32 - LIVE_LOCKS.ilog2()))
        .set("last_post", format!("{}u", LIVE_POSTS - 1))
        .fill();
    [&text, once, &live, turns, &frames].concat()
}

/// The functions of frames that may be taken away, for a pool of such elements.
fn evicting(element: HeapElement, barriers: bool, hoists: bool) -> String {
    let pool = "tombolo_system_pool[at]";
    let (element, word) = match element {
        HeapElement::AtomicWord => ("atomic<u32>", format!("atomicLoad(&{pool})")),
        HeapElement::AtomicSigned => ("atomic<i32>", format!("bitcast<u32>(atomicLoad(&{pool}))")),
        // Lent memory is counted in words.
        HeapElement::Word | HeapElement::Pair | HeapElement::Quad => ("u32", pool.to_owned()),
    };
    let again = match barriers {
        true => "atomicLoad(&tombolo_system_places[index])",
        // The place stays unchanged.
        false => "atomicOr(&tombolo_system_places[index], 0u)",
    };
    let (once, seen) = match hoists {
        true => (ONCE_EVICT, "tombolo_system_seen = vec2<u32>(index, found);"),
        false => ("", ""),
    };
    let text = Template::new(EVICT)
        .set("seen", seen)
        .set("element", element)
        .set("word", word)
        .set("again", again)
        .fill();
    [&text, once].concat()
}

impl System {
    /// The function for writing the invocation's note: the entry point calls the function before the end.
    pub fn writes_note(self) -> Option<Handle<Function>> {
        self.pages.map(|pages| pages.note)
    }
}

impl Builder<'_> {
    /// A pointer with an address of the host's memory.
    pub fn system_root(&mut self, raw: Value, site: usize) -> Root {
        let (low, high) = (self.member(raw, 0), self.member(raw, 1));
        Root {
            raw: Some(raw),
            global: low,
            base: Base::Address(low, high),
            selector: None,
            remaining: None,
            valid: None,
            is_limited: false,
            bytes: None,
            tells_length: false,
            code: site_code(site),
        }
    }

    fn called(&mut self, function: Handle<Function>, arguments: Vec<Value>) -> Value {
        let result = self.add(Expression::CallResult(function));
        self.push(Statement::Call {
            function,
            arguments,
            result: Some(result),
        });
        result
    }

    /// The place `count` words, `offset` bytes behind `place`, as a place in the pool; `None` for places not translated
    /// at their accesses.
    pub fn system_words(
        &mut self,
        place: &Place,
        offset: u32,
        count: u32,
        writes: bool,
    ) -> Option<Place> {
        let system = self.heap.system?;
        let Base::Address(low, high) = place.base else {
            return None;
        };
        let at = place.constant.wrapping_add(offset);
        let found = self.found(system, place, (low, high), at, count, writes);
        Some(Place {
            base: Base::Elements(found),
            constant: 0,
            kept: None,
            ..*place
        })
    }

    /// The `count` words, `offset` bytes behind `place`, loaded by the finding function, where no place may be kept
    /// from the translation to the access.
    pub fn system_load(&mut self, place: &Place, offset: u32, count: u32) -> Option<Value> {
        let system = self.heap.system?;
        let load = system.load?;
        let Base::Address(low, high) = place.base else {
            return None;
        };
        let at = place.constant.wrapping_add(offset);
        let (words, code) = (self.word(count), self.word(place.root.code));
        let offset = self.word(at);
        let mut arguments = vec![low, high, offset, words, code];
        let kept = place.kept.as_ref().map(|kept| (kept, kept.keeper));
        let loaded = match (kept, system.once.and_then(|once| once.load)) {
            (Some((kept, Keeper::First(variable))), Some((load, loaded))) => {
                self.kept_arguments((kept, variable), at, &mut arguments);
                let now = self.called(load, arguments);
                self.store(variable, now);
                let loaded = self.global(loaded);
                self.load(loaded)
            }
            _ => self.called(load, arguments),
        };
        Some(self.part(loaded, 4, 0, count))
    }

    /// The word with the half `offset` bytes behind the place, and the number of the half's lowest bit; as
    /// [`Builder::system_load`].
    pub fn system_load_half(&mut self, place: &Place, offset: u32) -> Option<(Value, Value)> {
        let (_, Base::Address(low, high)) = (self.heap.system?.load?, place.base) else {
            return None;
        };
        let at = place.constant.wrapping_add(offset);
        let (word, shift) = self.system_half_word(place, (low, high), at);
        Some((self.system_load(&word, 0, 1)?, shift))
    }

    fn found(
        &mut self,
        system: System,
        place: &Place,
        (low, high): (Value, Value),
        at: u32,
        count: u32,
        writes: bool,
    ) -> Value {
        let code = match writes {
            true => place.root.code | WRITE_BIT,
            false => place.root.code,
        };
        let (offset, count, code) = (self.word(at), self.word(count), self.word(code));
        let mut arguments = vec![low, high, offset, count, code];
        let kept = place.kept.as_ref().map(|kept| (kept, kept.keeper));
        match (kept, system.once, system.pages) {
            (Some((kept, Keeper::First(variable))), Some(once), _) => {
                self.kept_arguments((kept, variable), at, &mut arguments);
                let found = self.called(once.find, arguments);
                let now = self.part(found, 4, 1, 3);
                self.store(variable, now);
                self.member(found, 0)
            }
            (Some((kept, Keeper::Pages(known))), _, Some(pages)) => {
                let within = self.within(kept, at);
                arguments.extend([within, known]);
                self.called(pages.part, arguments)
            }
            _ => self.called(system.find, arguments),
        }
    }

    /// Whether the pages of pointees are looked up where pointers are made.
    pub fn looks_up_pages(&self) -> bool {
        (self.heap.system).is_some_and(|system| system.pages.is_some())
    }

    /// What is known of the pages of a pointee `at` bytes behind an address.
    pub fn pages_of(
        &mut self,
        (low, high): (Value, Value),
        at: u32,
        is_written: bool,
    ) -> Option<Value> {
        let pages = self.heap.system?.pages?;
        let function = match is_written {
            true => pages.written,
            false => pages.read,
        };
        let at = self.word(at);
        Some(self.called(function, vec![low, high, at]))
    }

    /// The word of the pool with the half `at` bytes behind the place's address, and the number of the half's lowest
    /// bit.
    pub fn system_half(&mut self, place: &Place, at: u32, writes: bool) -> (Value, Value) {
        let zero = self.word(0);
        let (Some(system), Base::Address(low, high)) = (self.heap.system, place.base) else {
            return (zero, zero);
        };
        let (word, shift) = self.system_half_word(place, (low, high), at);
        let Base::Address(low, high) = word.base else {
            return (zero, zero);
        };
        let word = self.found(system, &word, (low, high), 0, 1, writes);
        (word, shift)
    }

    /// The word with the half `at` bytes behind a place's address, and the number of the half's lowest bit.
    fn system_half_word(
        &mut self,
        place: &Place,
        address: (Value, Value),
        at: u32,
    ) -> (Place, Value) {
        let address = self.system_address(address, at);
        let (low, high) = (self.member(address, 0), self.member(address, 1));
        let odd = self.with(Op::And, low, 2);
        let low = self.binary(Op::Subtract, low, odd);
        let word = Place {
            base: Base::Address(low, high),
            constant: 0,
            kept: self.kept_around(place.kept, at, odd),
            ..*place
        };
        (word, self.with(Op::ShiftLeft, odd, 3))
    }

    /// The address `index * stride` bytes further on.
    pub fn system_step(&mut self, (low, high): (Value, Value), index: Value, stride: u32) -> Base {
        let Some(system) = self.heap.system else {
            return Base::Address(low, high);
        };
        let stride = self.word(stride);
        let moved = self.called(system.step, vec![low, high, index, stride]);
        Base::Address(self.member(moved, 0), self.member(moved, 1))
    }

    /// The address `bytes` further on, as a pointer.
    pub fn system_address(&mut self, (low, high): (Value, Value), bytes: u32) -> Value {
        if bytes == 0 {
            return self.pair(low, high);
        }
        let sum = self.plus(low, bytes);
        let wrapped = self.binary(Op::Less, sum, low);
        let (one, zero) = (self.word(1), self.word(0));
        let carry = self.select(wrapped, one, zero);
        let high = self.binary(Op::Add, high, carry);
        self.pair(sum, high)
    }
}

impl Rewriter<'_> {
    /// Whether a loop is to end behind a fault of its invocation.
    pub(super) fn leaves_failed(&self, body: &Block, continuing: &Block) -> bool {
        let meets = |block| turns::meets(block, self.plan.meetings);
        self.plan.heap.system.is_some() && !meets(body) && !meets(continuing)
    }

    /// The body of a loop, ended at its start where the invocation has met with a fault, if `leave`.
    pub(super) fn ended_by_failure(&mut self, body: Block, leave: bool) -> Block {
        let Some(system) = self.plan.heap.system.filter(|_| leave) else {
            return body;
        };
        let outer = self.builder.open();
        let failed = self.builder.global(system.failed);
        let failed = self.builder.load(failed);
        let condition = self.builder.with(Op::NotEqual, failed, 0);
        let mut accept = Block::new();
        accept.push(Statement::Break, self.builder.code.span);
        self.builder.push(Statement::If {
            condition,
            accept,
            reject: Block::new(),
        });
        self.builder.append(body);
        self.builder.close(outer)
    }
}
