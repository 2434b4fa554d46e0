//! The host's routes, in little memory even for a full table, and which of them are a mass.
//!
//! Every prefix of the main table has a *group*: all its routes, in the kernel's order. Thousands of prefixes that a
//! routing daemon sends to the same next hop have the same group, so a prefix only needs its key and a number. A group of more than
//! [`MASS_BEGINS`] prefixes is a *mass*: it has one verdict, and snapshots of the host do not list its prefixes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;

use anabranch_core::Family;

use crate::observe::{Hop, HostRoute, Mass, MassKey, Prefix, RouteKind, TABLE_LOCAL, TABLE_MAIN};
use crate::plane::Verdict;

/// A group with more prefixes than this becomes a mass; ...
const MASS_BEGINS: usize = 256;
/// ... with fewer than this it is no longer one.
const MASS_ENDS: usize = 128;

/// A route without its table and prefix.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Path {
    pub kind: RouteKind,
    pub metric: u32,
    pub source: Option<IpAddr>,
    pub hops: Vec<Hop>,
    pub of_lease: bool,
}

impl Path {
    fn at(&self, table: u32, prefix: Prefix) -> HostRoute {
        HostRoute {
            table,
            prefix,
            kind: self.kind,
            metric: self.metric,
            source: self.source,
            hops: self.hops.clone(),
            of_lease: self.of_lease,
        }
    }
}

/// The number of a prefix's group. The upper bit says in which walk the prefix was seen last.
type Slot = u32;
const SEEN: Slot = 1 << 31;

#[derive(Debug)]
struct Group {
    paths: Vec<Path>,
    prefixes: usize,
    generation: u32,
    is_mass: bool,
    /// The verdict of the mass; none: its prefixes are not written as a mass.
    verdict: Option<Verdict>,
}

/// Prefixes in the order of their addresses, packed.
#[derive(Debug, Default)]
struct Prefixes {
    v4: BTreeMap<[u8; 5], Slot>,
    v6: BTreeMap<[u8; 17], Slot>,
}

fn packed<const N: usize>(address: &[u8], length: u8) -> [u8; N] {
    let mut key = [0; N];
    key[..N - 1].copy_from_slice(address);
    key[N - 1] = length;
    key
}

fn unpacked_v4(key: &[u8; 5]) -> Prefix {
    let [a, b, c, d, length] = *key;
    Prefix::new([a, b, c, d].into(), length)
}

fn unpacked_v6(key: &[u8; 17]) -> Prefix {
    let mut address = [0; 16];
    address.copy_from_slice(&key[..16]);
    Prefix::new(address.into(), key[16])
}

impl Prefixes {
    fn get(&self, prefix: Prefix) -> Option<Slot> {
        match prefix.address {
            IpAddr::V4(v4) => self.v4.get(&packed(&v4.octets(), prefix.length)).copied(),
            IpAddr::V6(v6) => self.v6.get(&packed(&v6.octets(), prefix.length)).copied(),
        }
    }

    fn set(&mut self, prefix: Prefix, slot: Option<Slot>) {
        match prefix.address {
            IpAddr::V4(v4) => put(&mut self.v4, packed(&v4.octets(), prefix.length), slot),
            IpAddr::V6(v6) => put(&mut self.v6, packed(&v6.octets(), prefix.length), slot),
        }
    }

    fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    fn iter(&self) -> impl Iterator<Item = (Prefix, Slot)> {
        let v4 = self.v4.iter().map(|(key, slot)| (unpacked_v4(key), *slot));
        let v6 = self.v6.iter().map(|(key, slot)| (unpacked_v6(key), *slot));
        v4.chain(v6)
    }

    /// The prefixes after `last`, first of one family, then of the other.
    fn after(&self, last: Option<Prefix>) -> Box<dyn Iterator<Item = (Prefix, Slot)> + '_> {
        use std::ops::Bound::{Excluded, Unbounded};
        let v6 = |from| {
            let rest = self.v6.range::<[u8; 17], _>((from, Unbounded));
            rest.map(|(key, slot)| (unpacked_v6(key), *slot))
        };
        match last.map(|last| (last.address, last.length)) {
            None => Box::new(self.iter()),
            Some((IpAddr::V6(address), length)) => {
                Box::new(v6(Excluded(packed(&address.octets(), length))))
            }
            Some((IpAddr::V4(address), length)) => {
                let from = Excluded(packed::<5>(&address.octets(), length));
                let v4 = self.v4.range::<[u8; 5], _>((from, Unbounded));
                let v4 = v4.map(|(key, slot)| (unpacked_v4(key), *slot));
                Box::new(v4.chain(v6(Unbounded)))
            }
        }
    }
}

fn put<K: Ord>(map: &mut BTreeMap<K, Slot>, key: K, slot: Option<Slot>) {
    match slot {
        Some(slot) => drop(map.insert(key, slot)),
        None => drop(map.remove(&key)),
    }
}

/// What a change requires of the writer of the data path's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// The host has to be inspected again.
    Look,
    /// The prefix has to be written with the verdict of its mass, or removed.
    Write(Option<Verdict>),
    /// The host has to be inspected again, and the prefix, which left a mass, is still written as its.
    Left,
    /// Nothing.
    Nothing,
}

/// The routes of a network namespace.
#[derive(Debug, Default)]
pub struct Store {
    /// Prefixes of the main table, without default routes.
    main: Prefixes,
    groups: Vec<Group>,
    numbers: HashMap<Vec<Path>, u32>,
    free: Vec<u32>,
    generation: u32,
    /// Other routes: of the local table, and default routes; and whether the present walk has seen each.
    others: BTreeMap<(u32, Prefix), (Vec<Path>, bool)>,
    /// The value of the upper bit for prefixes that the present walk has seen.
    phase: bool,
    /// Prefixes of the main table that belong to no mass; none: they have to be collected.
    few: Option<BTreeSet<Prefix>>,
    /// Whether a mass began or ended.
    pub masses_changed: bool,
}

impl Store {
    pub fn len(&self) -> usize {
        self.main.len()
    }

    /// The routes of a prefix.
    fn paths(&self, table: u32, prefix: Prefix) -> &[Path] {
        if !is_main(table, prefix) {
            let found = self.others.get(&(table, prefix));
            return found.map_or(&[], |(paths, _)| paths);
        }
        let found = self.main.get(prefix);
        found.map_or(&[], |slot| &self.group(slot).paths)
    }

    fn group(&self, slot: Slot) -> &Group {
        &self.groups[(slot & !SEEN) as usize]
    }

    // ---- changes

    /// A route was added, or replaced another.
    pub fn add(&mut self, table: u32, prefix: Prefix, path: Path, mode: Added) -> Effect {
        if !is_kept(table, prefix) {
            return Effect::Nothing;
        }
        let mut paths = self.paths(table, prefix).to_vec();
        if paths.contains(&path) {
            return self.set(table, prefix, paths);
        }
        let is_v6 = prefix.family() == Family::V6;
        let same = |old: &Path| old.metric == path.metric;
        // IPv6 routes with routers and the same metric are one multipath route, and messages have all its hops.
        let is_one = |old: &Path| is_v6 && same(old) && has_router(old) && has_router(&path);
        match mode {
            Added::Replaces => {
                if let Some(old) = paths.iter().position(same) {
                    paths.remove(old);
                }
            }
            Added::Beside => paths.retain(|old| !is_one(old)),
        }
        let place = paths.iter().position(|old| old.metric > path.metric);
        paths.insert(place.unwrap_or(paths.len()), path);
        self.set(table, prefix, paths)
    }

    /// A route was removed.
    pub fn remove(&mut self, table: u32, prefix: Prefix, path: &Path) -> Effect {
        let mut paths = self.paths(table, prefix).to_vec();
        let exact = paths.iter().position(|old| old == path);
        let same = |old: &Path| old.metric == path.metric && old.kind == path.kind;
        let part = |old: &Path| {
            let mut hops = path.hops.iter();
            same(old) && hops.all(|hop| old.hops.contains(hop))
        };
        if let Some(exact) = exact {
            paths.remove(exact);
        } else if let Some(whole) = paths.iter_mut().find(|old| part(old)) {
            // Only one of several hops was removed.
            whole.hops.retain(|hop| !path.hops.contains(hop));
            paths.retain(|path| !path.hops.is_empty());
        }
        self.set(table, prefix, paths)
    }

    /// Removes all routes that fulfil `is_gone`, as the kernel does without a message. Returns the effect for each prefix.
    pub fn purge(&mut self, is_gone: impl Fn(Prefix, &Path) -> bool) -> Vec<(u32, Prefix, Effect)> {
        let hit = |prefix, paths: &[Path]| paths.iter().any(|path| is_gone(prefix, path));
        let groups: BTreeSet<usize> = (0..self.groups.len())
            .filter(|place| {
                let paths = &self.groups[*place].paths;
                let mut everything = Family::ALL.map(Prefix::everything).into_iter();
                everything.any(|prefix| hit(prefix, paths))
            })
            .collect();
        let of_main = self.main.iter().filter(|_| !groups.is_empty());
        let of_main = of_main.filter(|(_, slot)| groups.contains(&((slot & !SEEN) as usize)));
        let of_main = of_main.map(|(prefix, _)| (TABLE_MAIN, prefix));
        let others = self.others.iter();
        let others = others.filter(|((_, prefix), (paths, _))| hit(*prefix, paths));
        let places: Vec<(u32, Prefix)> = of_main.chain(others.map(|(place, _)| *place)).collect();
        let purge = |(table, prefix): (u32, Prefix)| {
            let mut paths = self.paths(table, prefix).to_vec();
            paths.retain(|path| !is_gone(prefix, path));
            (table, prefix, self.set(table, prefix, paths))
        };
        places.into_iter().map(purge).collect()
    }

    /// Sets the routes of a prefix, and marks it as seen by the present walk.
    pub fn set(&mut self, table: u32, prefix: Prefix, paths: Vec<Path>) -> Effect {
        if !is_kept(table, prefix) {
            return Effect::Nothing;
        }
        if is_main(table, prefix) {
            return self.set_main(prefix, paths);
        }
        let place = (table, prefix);
        let before = match paths.is_empty() {
            true => self.others.remove(&place),
            false => self.others.insert(place, (paths.clone(), self.phase)),
        };
        match before.map_or(paths.is_empty(), |(before, _)| before == paths) {
            true => Effect::Nothing,
            false => Effect::Look,
        }
    }

    fn set_main(&mut self, prefix: Prefix, paths: Vec<Path>) -> Effect {
        let seen = if self.phase { SEEN } else { 0 };
        let before = self.main.get(prefix);
        if let Some(before) = before.filter(|slot| self.group(*slot).paths == paths) {
            if before & SEEN != seen {
                self.main.set(prefix, Some(before & !SEEN | seen));
            }
            return Effect::Nothing;
        }
        let now = (!paths.is_empty()).then(|| self.enter(paths));
        self.main.set(prefix, now.map(|now| now | seen));
        let was = before.map(|before| {
            let before = &self.groups[(before & !SEEN) as usize];
            (before.is_mass, before.verdict)
        });
        let is = now.map(|now| {
            let now = &self.groups[now as usize];
            (now.is_mass, now.verdict)
        });
        if let Some(before) = before {
            self.leave(before & !SEEN);
        }
        match (&mut self.few, is) {
            (Some(few), Some((false, _))) => drop(few.insert(prefix)),
            (Some(few), _) => drop(few.remove(&prefix)),
            (None, _) => {}
        }
        match (was, is) {
            (_, Some((true, Some(verdict)))) => Effect::Write(Some(verdict)),
            (Some((true, Some(_))), None) => Effect::Write(None),
            (Some((_, Some(_))), _) => Effect::Left,
            // A new mass, about which the loop has not decided yet.
            _ => Effect::Look,
        }
    }

    /// The number of a group, after adding a prefix to it.
    fn enter(&mut self, paths: Vec<Path>) -> u32 {
        let number = match self.numbers.get(&paths) {
            Some(number) => *number,
            None => self.make(paths),
        };
        let group = &mut self.groups[number as usize];
        group.prefixes += 1;
        let may_be = group.paths.iter().all(|path| !path.of_lease);
        if !group.is_mass && may_be && group.prefixes > MASS_BEGINS {
            group.is_mass = true;
            (self.masses_changed, self.few) = (true, None);
        }
        number
    }

    fn make(&mut self, paths: Vec<Path>) -> u32 {
        self.generation = self.generation.wrapping_add(1);
        let group = Group {
            paths: paths.clone(),
            prefixes: 0,
            generation: self.generation,
            is_mass: false,
            verdict: None,
        };
        let number = match self.free.pop() {
            Some(number) => {
                self.groups[number as usize] = group;
                number
            }
            None => {
                self.groups.push(group);
                self.groups.len() as u32 - 1
            }
        };
        self.numbers.insert(paths, number);
        number
    }

    fn leave(&mut self, number: u32) {
        let group = &mut self.groups[number as usize];
        group.prefixes -= 1;
        if group.is_mass && group.prefixes < MASS_ENDS {
            group.is_mass = false;
            (self.masses_changed, self.few) = (true, None);
        }
        if group.prefixes == 0 {
            let paths = std::mem::take(&mut group.paths);
            group.verdict = None;
            self.numbers.remove(&paths);
            self.free.push(number);
        }
    }

    // ---- walks over all the kernel has

    /// Begins a walk: prefixes that are set from now on count as seen.
    pub fn begin_walk(&mut self) {
        self.phase = !self.phase;
    }

    /// Removes what the walk over a family has not seen. Returns the effect for each prefix.
    pub fn end_walk(&mut self, family: Family) -> Vec<(u32, Prefix, Effect)> {
        let seen = if self.phase { SEEN } else { 0 };
        let is_of = |prefix: &Prefix| prefix.family() == family;
        let main = self.main.iter();
        let main = main.filter(|(prefix, slot)| slot & SEEN != seen && is_of(prefix));
        let main = main.map(|(prefix, _)| (TABLE_MAIN, prefix));
        let others = self.others.iter();
        let others = others.filter(|((_, prefix), (_, at))| *at != self.phase && is_of(prefix));
        let gone: Vec<(u32, Prefix)> = main.chain(others.map(|(place, _)| *place)).collect();
        let gone = gone.into_iter();
        gone.map(|(table, prefix)| (table, prefix, self.set(table, prefix, Vec::new())))
            .collect()
    }

    // ---- what is known

    /// All routes except those of masses, and the masses.
    pub fn view(&mut self) -> (Vec<HostRoute>, Vec<Mass>) {
        let others = self.others.iter();
        let others = others.flat_map(|((table, prefix), (paths, _))| {
            paths.iter().map(|path| path.at(*table, *prefix))
        });
        let mut routes: Vec<HostRoute> = others.collect();
        if self.few.is_none() {
            let main = self.main.iter();
            let few = main.filter(|(_, slot)| !self.group(*slot).is_mass);
            self.few = Some(few.map(|(prefix, _)| prefix).collect());
        }
        for prefix in self.few.iter().flatten() {
            let paths = self.paths(TABLE_MAIN, *prefix).iter();
            routes.extend(paths.map(|path| path.at(TABLE_MAIN, *prefix)));
        }
        let masses = self.groups.iter().enumerate();
        let masses = masses
            .filter(|(_, group)| group.is_mass)
            .map(|(number, group)| Mass {
                key: MassKey(number as u32, group.generation),
                // A mass has no destination of its own.
                route: group.paths[0].at(TABLE_MAIN, Prefix::everything(Family::V4)),
            });
        (routes, masses.collect())
    }

    /// Whether it is an address of the host.
    pub fn is_local(&self, address: IpAddr) -> bool {
        let place = (TABLE_LOCAL, Prefix::host(address));
        self.others.contains_key(&place)
    }

    /// Whether the main table has the prefix.
    pub fn has(&self, prefix: Prefix) -> bool {
        self.main.get(prefix).is_some()
    }

    /// The verdict with which a prefix of a mass is written, if it is.
    pub fn written(&self, prefix: Prefix) -> Option<Verdict> {
        let slot = self.main.get(prefix)?;
        self.group(slot).verdict
    }

    /// Sets the verdicts of masses. Other masses have none any more. Returns whether prefixes have to be written again, and whether
    /// some have to be removed.
    pub fn tell(&mut self, verdicts: &[(MassKey, Verdict)]) -> (bool, bool) {
        let mut told: BTreeMap<u32, Verdict> = BTreeMap::new();
        for (MassKey(number, generation), verdict) in verdicts {
            let group = self.groups.get(*number as usize);
            if group.is_some_and(|group| group.generation == *generation && group.prefixes > 0) {
                told.insert(*number, *verdict);
            }
        }
        let (mut writes, mut drops) = (false, false);
        for (number, group) in (0..).zip(&mut self.groups) {
            let verdict = told.get(&number).copied();
            writes |= verdict.is_some() && verdict != group.verdict;
            drops |= verdict.is_none() && group.verdict.is_some();
            group.verdict = verdict;
        }
        (writes, drops)
    }

    /// Prefixes of the main table after `last`, with the verdict if they are written as part of a mass.
    pub fn after(
        &self,
        last: Option<Prefix>,
    ) -> impl Iterator<Item = (Prefix, Option<Verdict>)> + '_ {
        let rest = self.main.after(last);
        rest.map(|(prefix, slot)| (prefix, self.group(slot).verdict))
    }
}

/// How a route was added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    /// It replaces the first of its metric.
    Replaces,
    /// It is added to those of the prefix.
    Beside,
}

fn has_router(path: &Path) -> bool {
    path.hops.iter().all(|hop| hop.via.is_some())
}

/// Whether a route is stored: of tables other than main and local, only default routes are needed.
fn is_kept(table: u32, prefix: Prefix) -> bool {
    table == TABLE_MAIN || table == TABLE_LOCAL || prefix.length == 0
}

fn is_main(table: u32, prefix: Prefix) -> bool {
    table == TABLE_MAIN && prefix.length > 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plane::LinkId;

    const FIRST: u32 = 7;
    const SECOND: u32 = 8;

    fn path(ifindex: u32, metric: u32) -> Path {
        Path {
            kind: RouteKind::Unicast,
            metric,
            source: None,
            hops: vec![Hop {
                ifindex,
                via: Some([192, 0, 2, ifindex as u8].into()),
            }],
            of_lease: false,
        }
    }

    fn prefix(number: usize) -> Prefix {
        let [.., high, low] = number.to_be_bytes();
        Prefix::new([20, high, low, 0].into(), 24)
    }

    fn by(link: u16) -> Verdict {
        Verdict::Link {
            link: LinkId(link),
            via: None,
        }
    }

    fn add(store: &mut Store, number: usize, ifindex: u32) -> Effect {
        store.add(
            TABLE_MAIN,
            prefix(number),
            path(ifindex, 0),
            Added::Replaces,
        )
    }

    /// So many by the first device, known as a mass with a verdict.
    fn with_mass() -> Store {
        let mut store = Store::default();
        for number in 0..=MASS_BEGINS {
            assert_eq!(add(&mut store, number, FIRST), Effect::Look);
        }
        let (routes, masses) = store.view();
        assert!(routes.is_empty(), "{routes:?}");
        assert_eq!(masses[0].route.hops, path(FIRST, 0).hops);
        assert_eq!(store.tell(&[(masses[0].key, by(1))]), (true, false));
        store
    }

    #[test]
    fn prefixes_of_a_mass_are_written_and_not_looked_at() {
        let mut store = with_mass();
        let one_more = MASS_BEGINS + 1;
        assert_eq!(add(&mut store, one_more, FIRST), Effect::Write(Some(by(1))));
        assert_eq!(store.written(prefix(one_more)), Some(by(1)));
        let gone = store.remove(TABLE_MAIN, prefix(one_more), &path(FIRST, 0));
        assert_eq!(gone, Effect::Write(None));
        assert_eq!(store.view().0, [], "none is listed");
    }

    #[test]
    fn a_prefix_that_leaves_a_mass_is_looked_at() {
        let mut store = with_mass();
        assert_eq!(add(&mut store, 3, SECOND), Effect::Left);
        let (routes, masses) = store.view();
        assert_eq!(routes, [path(SECOND, 0).at(TABLE_MAIN, prefix(3))]);
        assert_eq!(masses.len(), 1);
        assert_eq!(add(&mut store, 3, FIRST), Effect::Write(Some(by(1))));
        assert!(store.view().0.is_empty());
    }

    #[test]
    fn a_mass_ends_when_few_are_left_of_it() {
        let mut store = with_mass();
        store.masses_changed = false;
        for number in 0..=MASS_BEGINS - MASS_ENDS {
            assert!(!store.masses_changed);
            store.remove(TABLE_MAIN, prefix(number), &path(FIRST, 0));
        }
        assert_eq!(store.view().1.len(), 1, "still {}", store.len());
        store.remove(TABLE_MAIN, prefix(MASS_BEGINS), &path(FIRST, 0));
        assert!(store.masses_changed);
        let (routes, masses) = store.view();
        assert_eq!((routes.len(), masses.len()), (MASS_ENDS - 1, 0));
        assert_eq!(store.tell(&[]), (false, true), "to be taken out or listed");
    }

    #[test]
    fn what_was_decided_about_a_mass_holds_for_no_other_in_its_place() {
        let mut store = with_mass();
        let former = store.view().1[0].key;
        for number in 0..=MASS_BEGINS {
            store.remove(TABLE_MAIN, prefix(number), &path(FIRST, 0));
        }
        for number in 0..=MASS_BEGINS {
            add(&mut store, number, SECOND);
        }
        assert_eq!(store.view().1[0].key.0, former.0, "the same place");
        store.tell(&[(former, by(1))]);
        assert_eq!(store.written(prefix(0)), None);
    }

    #[test]
    fn a_walk_takes_away_what_it_does_not_meet() {
        let mut store = with_mass();
        store.begin_walk();
        for number in 1..=MASS_BEGINS {
            let met = store.set(TABLE_MAIN, prefix(number), vec![path(FIRST, 0)]);
            assert_eq!(met, Effect::Nothing);
        }
        // What was heard meanwhile counts as met.
        add(&mut store, 1000, FIRST);
        assert!(store.end_walk(Family::V6).is_empty());
        let gone = store.end_walk(Family::V4);
        assert_eq!(gone, [(TABLE_MAIN, prefix(0), Effect::Write(None))]);
        assert_eq!(store.len(), MASS_BEGINS + 1);
        store.begin_walk();
        assert_eq!(store.end_walk(Family::V4).len(), MASS_BEGINS + 1);
    }

    #[test]
    fn the_best_route_of_a_prefix_is_that_of_the_smallest_metric_as_long_as_it_stands() {
        let mut store = Store::default();
        for metric in [200, 100, 300] {
            let path = path(metric, metric);
            store.add(TABLE_MAIN, prefix(0), path, Added::Beside);
        }
        let best = |store: &mut Store| store.view().0[0].metric;
        assert_eq!(best(&mut store), 100);
        store.remove(TABLE_MAIN, prefix(0), &path(100, 100));
        assert_eq!(best(&mut store), 200);
        store.add(TABLE_MAIN, prefix(0), path(9, 200), Added::Replaces);
        let routes = store.view().0;
        assert_eq!((routes[0].hops[0].ifindex, routes.len()), (9, 2));
    }

    #[test]
    fn a_route_over_several_links_loses_them_one_by_one() {
        let prefix = Prefix::new("2001:db8::".parse().unwrap(), 32);
        let hop = |number: u16| Hop {
            ifindex: number.into(),
            via: Some([0xfe80, 0, 0, 0, 0, 0, 0, number].into()),
        };
        let over = |hops: &[Hop]| Path {
            hops: hops.to_vec(),
            ..path(FIRST, 1024)
        };
        let mut store = Store::default();
        store.add(TABLE_MAIN, prefix, over(&[hop(1)]), Added::Beside);
        store.add(TABLE_MAIN, prefix, over(&[hop(1), hop(2)]), Added::Beside);
        assert_eq!(store.view().0.len(), 1, "one route of two hops");
        store.remove(TABLE_MAIN, prefix, &over(&[hop(1)]));
        assert_eq!(store.view().0[0].hops, [hop(2)]);
        store.remove(TABLE_MAIN, prefix, &over(&[hop(2)]));
        assert!(!store.has(prefix));
    }

    #[test]
    fn routes_go_with_the_devices_of_all_their_hops() {
        let mut store = Store::default();
        let mut both = path(FIRST, 0);
        both.hops.extend(path(SECOND, 0).hops);
        store.add(TABLE_MAIN, prefix(0), both, Added::Beside);
        add(&mut store, 1, FIRST);
        let everything = Prefix::everything(Family::V4);
        store.add(TABLE_MAIN, everything, path(FIRST, 0), Added::Beside);
        let lost = |down: &'static [u32]| {
            move |_: Prefix, path: &Path| path.hops.iter().all(|hop| down.contains(&hop.ifindex))
        };
        let gone: Vec<Prefix> = store
            .purge(lost(&[FIRST]))
            .iter()
            .map(|gone| gone.1)
            .collect();
        assert_eq!(gone, [prefix(1), everything]);
        assert_eq!(store.purge(lost(&[FIRST, SECOND])).len(), 1);
    }

    #[test]
    fn of_other_tables_only_default_routes_are_known() {
        let mut store = Store::default();
        let specific = store.add(52, prefix(0), path(FIRST, 0), Added::Beside);
        assert_eq!(specific, Effect::Nothing);
        let everything = Prefix::everything(Family::V4);
        let default = store.add(52, everything, path(FIRST, 0), Added::Beside);
        assert_eq!(default, Effect::Look);
        assert_eq!(store.view().0.len(), 1);
    }
}
