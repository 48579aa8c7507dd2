//! Places that are given anew, against a model without places: every device has an array of values of its own, however
//! many devices come and go.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Weak;

use proptest::prelude::*;

use super::device_places::{DevicePlaces, Standing, Vacancy};
use crate::memory::migrate::{Access, MigrateError, Place, Places, Residency, Routes, Want};

const LEN: usize = 12;
/// Few, so that all are in use all the time.
const LIMIT: usize = 3;

/// What a byte should be.
#[derive(Clone, PartialEq, Debug)]
enum Truth {
    Undefined,
    Is(u32),
    /// Lost with a device of this name.
    Lost(String),
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum State {
    Open,
    Dropped,
    Lost,
}

/// A device's memory for the buffer, and when it was last used.
struct Memory {
    values: [Option<u32>; LEN],
    used_at: u64,
}

struct Model {
    residency: Residency,
    places: DevicePlaces<usize, LIMIT>,
    devices: Vec<State>,
    memory: BTreeMap<usize, Memory>,
    host: [Option<u32>; LEN],
    truth: Vec<Truth>,
    /// Who has the latest value, by device; the host is `None`.
    holders: Vec<Vec<Option<usize>>>,
    last: u32,
    now: u64,
}

/// Some devices have the same name.
fn name(device: usize) -> String {
    format!("card {}", device % 5)
}

fn bytes(range: &Range<u64>) -> Range<usize> {
    range.start as usize..range.end as usize
}

impl Model {
    fn new() -> Self {
        Self {
            residency: Residency::new(LEN as u64),
            places: DevicePlaces::default(),
            devices: Vec::new(),
            memory: BTreeMap::new(),
            host: [None; LEN],
            truth: vec![Truth::Undefined; LEN],
            holders: vec![Vec::new(); LEN],
            last: 0,
            now: 0,
        }
    }

    fn at(&self, place: Place) -> Option<usize> {
        if place.is_host() {
            return None;
        }
        let found = self.places.iter().find(|(known, _)| *known == place);
        Some(*found.expect("a place of a device").1)
    }

    fn values(&mut self, at: Option<usize>) -> &mut [Option<u32>; LEN] {
        match at {
            None => &mut self.host,
            Some(device) => &mut self.memory.get_mut(&device).expect("memory").values,
        }
    }

    fn copy(&mut self, from: Place, to: Place, range: &Range<u64>) {
        let (from, to) = (self.at(from), self.at(to));
        for byte in bytes(range) {
            assert!(
                self.holders[byte].contains(&from),
                "byte {byte} is not the latest at its source"
            );
            let value = self.values(from)[byte];
            self.values(to)[byte] = value;
            self.holders[byte].push(to);
        }
    }

    /// As `Root::place_on`.
    fn place_on(&mut self, device: usize) -> Place {
        if let Some(place) = self.places.find(|known| *known == device) {
            return place;
        }
        for _ in 0..=2 * LIMIT {
            let standing = |_, known: &usize| Standing {
                is_gone: self.devices[*known] != State::Open && !self.memory.contains_key(known),
                used_at: self.memory.get(known).map(|memory| memory.used_at),
            };
            let vacancy = self
                .places
                .vacancy(&self.residency, standing, Places::EMPTY);
            match vacancy.expect("no memory is to be kept") {
                Vacancy::At(place) => {
                    assert!(place.index() as usize <= LIMIT);
                    self.residency.vacate(place).expect("nothing is there");
                    self.places.give(place, device);
                    return place;
                }
                Vacancy::BehindLosses(from, to) => {
                    self.residency.rename_losses(from, to);
                    self.places.join_losses(from, to);
                }
                Vacancy::BehindMemory(place) => self.give_up(place),
            }
        }
        panic!("no place becomes vacant");
    }

    fn give_up(&mut self, place: Place) {
        let eviction = self.residency.evictable(place, &Routes::new());
        for step in &eviction.plan.steps {
            self.copy(step.from, step.to, &step.range);
        }
        self.residency.commit(&eviction.plan).unwrap();
        self.residency.evicted(place, 0..LEN as u64).unwrap();
        let device = self.at(place).expect("a device");
        self.memory.remove(&device).expect("memory");
        for holders in &mut self.holders {
            let had_some = !holders.is_empty();
            holders.retain(|holder| *holder != Some(device));
            assert_eq!(had_some, !holders.is_empty(), "the latest bytes are gone");
        }
    }

    fn command(&mut self, at: Option<usize>, range: Range<u64>, access: Access) {
        let place = match at {
            None => Place::HOST,
            Some(device) => {
                let place = self.place_on(device);
                let unknown = || Memory {
                    values: [None; LEN],
                    used_at: 0,
                };
                self.now += 1;
                self.memory.entry(device).or_insert_with(unknown).used_at = self.now;
                place
            }
        };
        let want = Want {
            place,
            range: range.clone(),
            access,
        };
        let lost = |byte: &usize| matches!(self.truth[*byte], Truth::Lost(_));
        let lost: Vec<usize> = match access.needs_content() {
            true => bytes(&range).filter(lost).collect(),
            false => Vec::new(),
        };
        let plan = match self.residency.plan(&[want], &Routes::new()) {
            Ok(plan) => plan,
            Err(MigrateError::Lost { place, ranges }) => {
                let told: Vec<usize> = ranges.iter().flat_map(bytes).collect();
                assert_eq!(told, lost);
                let name = self.places.lost_name(place).expect("a name");
                let Truth::Lost(expected) = &self.truth[lost[0]] else {
                    unreachable!();
                };
                assert!(
                    name.split(" or ").any(|name| name == expected),
                    "{name}, not {expected}"
                );
                return;
            }
            Err(error) => panic!("{error}"),
        };
        assert!(lost.is_empty(), "a loss is not told");
        for step in &plan.steps {
            self.copy(step.from, step.to, &step.range);
        }
        self.residency.commit(&plan).unwrap();
        if access.needs_content() {
            for byte in bytes(&range) {
                if let Truth::Is(value) = self.truth[byte] {
                    assert_eq!(self.values(at)[byte], Some(value), "byte {byte}");
                }
            }
        }
        if access.writes() {
            for byte in bytes(&range) {
                self.last += 1;
                let value = self.last;
                self.values(at)[byte] = Some(value);
                self.truth[byte] = Truth::Is(value);
                self.holders[byte] = vec![at];
            }
            self.residency.wrote(place, range).unwrap();
        }
    }

    fn lose(&mut self, device: usize) {
        self.devices[device] = State::Lost;
        if self.memory.remove(&device).is_none() {
            return;
        }
        let place = self.places.find(|known| *known == device).expect("a place");
        self.residency.lost(place);
        self.places.note_loss(place, &name(device));
        for (holders, truth) in self.holders.iter_mut().zip(&mut self.truth) {
            if *holders == [Some(device)] {
                *truth = Truth::Lost(name(device));
            }
            holders.retain(|holder| *holder != Some(device));
        }
    }
}

#[derive(Debug, Clone)]
enum Operation {
    Open,
    Drop(prop::sample::Index),
    Lose(prop::sample::Index),
    /// On one of the open devices, or on the host where there is none.
    Command(prop::sample::Index, Range<u64>, Access),
    Host(Range<u64>, Access),
}

fn operation() -> impl Strategy<Value = Operation> {
    let range = || (0..=LEN as u64, 0..=LEN as u64).prop_map(|(a, b)| a.min(b)..a.max(b));
    let access = || {
        let all = [
            Access::Read,
            Access::Write,
            Access::ReadWrite,
            Access::Overwrite,
        ];
        prop::sample::select(all.to_vec())
    };
    prop_oneof![
        3 => Just(Operation::Open),
        2 => any::<prop::sample::Index>().prop_map(Operation::Drop),
        1 => any::<prop::sample::Index>().prop_map(Operation::Lose),
        8 => (any::<prop::sample::Index>(), range(), access())
            .prop_map(|(index, range, access)| Operation::Command(index, range, access)),
        2 => (range(), access()).prop_map(|(range, access)| Operation::Host(range, access)),
    ]
}

proptest! {
    #[test]
    fn bytes_are_right_however_many_devices_come_and_go(
        operations in prop::collection::vec(operation(), 1..120),
    ) {
        let mut model = Model::new();
        for operation in operations {
            let having = |state: State| -> Vec<usize> {
                let devices = model.devices.iter().enumerate();
                devices.filter(|(_, known)| **known == state).map(|(device, _)| device).collect()
            };
            let open = having(State::Open);
            match operation {
                Operation::Open => model.devices.push(State::Open),
                Operation::Drop(index) if !open.is_empty() => {
                    model.devices[*index.get(&open)] = State::Dropped;
                }
                Operation::Lose(index) if !model.devices.is_empty() => {
                    model.lose(index.index(model.devices.len()));
                }
                Operation::Command(index, range, access) if !open.is_empty() => {
                    model.command(Some(*index.get(&open)), range, access);
                }
                Operation::Command(_, range, access) | Operation::Host(range, access) => {
                    model.command(None, range, access);
                }
                Operation::Drop(_) | Operation::Lose(_) => {}
            }
        }
        model.command(None, 0..LEN as u64, Access::Read);
    }
}

/// Losses of more names than there are places are told under both names.
#[test]
fn losses_of_many_names_leave_a_place() {
    let mut model = Model::new();
    for device in 0..4 * LEN {
        model.devices.push(State::Open);
        let byte = (device % LEN) as u64;
        model.command(Some(device), byte..byte + 1, Access::Overwrite);
        model.lose(device);
    }
    for byte in 0..LEN as u64 {
        model.command(None, byte..byte + 1, Access::Read);
    }
}

#[test]
fn names_follow_what_becomes_of_devices() {
    let [one, other] = [1, 2].map(|index| Place::new(index).unwrap());
    let mut places: DevicePlaces = DevicePlaces::default();
    places.give(one, Weak::new());
    places.give(other, Weak::new());
    let names = |places: &DevicePlaces| [Place::HOST, one, other].map(|at| places.name_of(at));
    assert_eq!(*names(&places)[1], one.to_string());
    places.note_loss(one, "a card");
    let [host, first, second] = names(&places);
    assert_eq!([&*host, &*first], ["the host", "a card"]);
    assert_eq!(*second, other.to_string());
    // Two of one name are told apart.
    places.note_loss(other, "a card");
    let alike = [one, other].map(|place| format!("a card ({place})"));
    assert_eq!(names(&places)[1..], alike.map(|name| name.into()));
    places.note_loss(other, "a chip");
    places.join_losses(other, one);
    assert_eq!(&*names(&places)[1], "a card or a chip");
    places.give(one, Weak::new());
    assert_eq!(*names(&places)[1], one.to_string());
}
