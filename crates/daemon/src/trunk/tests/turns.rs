//! The loop of a trunk on virtual time, among fakes of its data path, its host and its queues.

use std::sync::{Arc, Mutex};

use anabranch_api::{Request, Response, TrunkStatus};
use anabranch_core::multilink::{Counters, SublinkId};
use anabranch_dataplane::{Error as PlaneError, ReasonCount};
use anabranch_policy::abi::{BINS, Carried, Spreading};
use anabranch_policy::spread::Table;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;

use super::*;
use crate::Error;
use crate::config::Configuration;
use crate::observe::Running;
use crate::shell::{Order, Place, Role, take_turns};
use crate::trunk::plane::{Plane, Surroundings};
use crate::trunk::role::TrunkRole;

const TRUNK: u32 = 10;
const MS: Duration = Duration::from_millis(1);

/// What the data path or the host was told.
#[derive(Debug, Clone, PartialEq)]
enum Told {
    Table,
    Sublink(SublinkId, bool),
    /// The sublinks that IPv4 may use, as bits.
    Usable(u64),
    Attach(u32),
    Closed,
    Restored,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Read {
    Queues,
    Volumes,
}

/// Everything around the loop.
struct World {
    began: Instant,
    told: Vec<Told>,
    reads: Vec<(Duration, Read)>,
    host: Snapshot,
    queues: BTreeMap<u32, DeviceQueue>,
    volumes: Counters,
    table: Table,
    attached: Vec<u32>,
}

#[derive(Clone)]
struct Shared(Arc<Mutex<World>>);

impl Shared {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(World {
            began: Instant::now(),
            told: Vec::new(),
            reads: Vec::new(),
            host: host(),
            queues: BTreeMap::new(),
            volumes: [0; BINS],
            table: [0; BINS],
            attached: Vec::new(),
        })))
    }

    fn with<T>(&self, what: impl FnOnce(&mut World) -> T) -> T {
        what(&mut self.0.lock().unwrap())
    }

    fn tell(&self, told: Told) {
        self.with(|world| world.told.push(told));
    }

    fn read(&self, what: Read) {
        self.with(|world| world.reads.push((world.began.elapsed(), what)));
    }
}

impl Plane for Shared {
    fn set_spreading(&mut self, spreading: &Spreading) -> Result<(), PlaneError> {
        self.tell(Told::Usable(spreading.sublinks[0].usable));
        Ok(())
    }

    fn spreading(&self) -> Result<Spreading, PlaneError> {
        Ok(Spreading::default())
    }

    fn set_sublink(
        &mut self,
        sublink: SublinkId,
        path: Option<SublinkPath>,
    ) -> Result<(), PlaneError> {
        if sublink.index() < 2 {
            self.tell(Told::Sublink(sublink, path.is_some()));
        }
        Ok(())
    }

    fn set_table(&mut self, table: &Table) -> Result<(), PlaneError> {
        self.with(|world| world.table = *table);
        self.tell(Told::Table);
        Ok(())
    }

    fn table(&self) -> Result<Table, PlaneError> {
        Ok(self.with(|world| world.table))
    }

    fn volumes(&self) -> Result<Box<Counters>, PlaneError> {
        self.read(Read::Volumes);
        Ok(Box::new(self.with(|world| world.volumes)))
    }

    fn carried(&self) -> Result<Vec<Carried>, PlaneError> {
        Ok(vec![Carried::default(); 2])
    }

    fn reasons(&self) -> Result<Vec<ReasonCount>, PlaneError> {
        Ok(Vec::new())
    }

    fn attach(&mut self, ifindex: u32) -> Result<(), PlaneError> {
        if !self.with(|world| world.attached.contains(&ifindex)) {
            self.tell(Told::Attach(ifindex));
            self.with(|world| world.attached.push(ifindex));
        }
        Ok(())
    }

    fn detach(&mut self, ifindex: u32) -> Result<(), PlaneError> {
        self.with(|world| world.attached.retain(|other| *other != ifindex));
        Ok(())
    }

    fn attached(&self) -> Result<Vec<u32>, PlaneError> {
        Ok(self.with(|world| world.attached.clone()))
    }

    fn close(self) -> Result<(), PlaneError> {
        self.tell(Told::Closed);
        Ok(())
    }
}

struct FakeHost {
    world: Shared,
    changed: Arc<Notify>,
}

impl Surroundings for FakeHost {
    async fn snapshot(&mut self) -> anyhow::Result<Snapshot> {
        Ok(self.world.with(|world| world.host.clone()))
    }

    async fn changed(&mut self) -> anyhow::Result<()> {
        self.changed.notified().await;
        Ok(())
    }

    fn watch(&mut self, _: Running) {}

    async fn queues(&mut self) -> anyhow::Result<BTreeMap<u32, DeviceQueue>> {
        self.world.read(Read::Queues);
        Ok(self.world.with(|world| world.queues.clone()))
    }

    async fn check(&mut self, _: &Config) -> Result<(), Error> {
        Ok(())
    }

    fn loosen(&mut self, _: &[&str]) -> anyhow::Result<()> {
        Ok(())
    }

    fn keep_claims(&mut self, _: &Config, _: bool) -> anyhow::Result<()> {
        Ok(())
    }

    async fn restore(self) -> anyhow::Result<()> {
        self.world.tell(Told::Restored);
        Ok(())
    }
}

/// A trunk that runs on virtual time.
struct Rig {
    world: Shared,
    changed: Arc<Notify>,
    orders: mpsc::Sender<Order>,
    ended: tokio::task::JoinHandle<()>,
}

fn role(world: &Shared, changed: &Arc<Notify>) -> TrunkRole<Shared, FakeHost> {
    let surroundings = FakeHost {
        world: world.clone(),
        changed: changed.clone(),
    };
    let config = parse(&MINIMAL.replace(" }", ", buffer = \"100kB\" }")).unwrap();
    TrunkRole::new(config, "test", (world.clone(), false), surroundings).unwrap()
}

impl Rig {
    async fn start() -> Self {
        let (world, changed) = (Shared::new(), Arc::default());
        let mut role = role(&world, &changed);
        role.start().await.unwrap();
        let (orders, mut taken) = mpsc::channel(1);
        let ended = tokio::spawn(async move {
            take_turns(&mut role, &mut taken, &Place::default())
                .await
                .unwrap();
            role.close().await.unwrap();
        });
        Self {
            world,
            changed,
            orders,
            ended,
        }
    }

    async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    async fn order(&self, order: Order) {
        self.orders.send(order).await.unwrap();
    }

    async fn status(&self) -> TrunkStatus {
        let (reply, response) = oneshot::channel();
        self.order(Order::Answer((Request::Status, reply))).await;
        match response.await.unwrap() {
            Response::Status(status) => *status.trunk.unwrap(),
            other => panic!("{other:?}"),
        }
    }

    async fn change_host(&self, change: impl FnOnce(&mut Snapshot)) {
        self.world.with(|world| change(&mut world.host));
        self.changed.notify_one();
        self.pass(MS).await;
    }

    /// What was told since the last call.
    fn told(&self) -> Vec<Told> {
        self.world.with(|world| std::mem::take(&mut world.told))
    }

    fn waits(&self, ifindex: u32, bytes: u64) {
        let queue = DeviceQueue {
            kind: "tbf".to_owned(),
            length_bytes: bytes,
            ..DeviceQueue::default()
        };
        self.world.with(|world| world.queues.insert(ifindex, queue));
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_attaches_the_program_last_when_all_is_told() {
    let rig = Rig::start().await;
    let order = [
        Told::Table,
        Told::Sublink(SublinkId(0), true),
        Told::Sublink(SublinkId(1), true),
        Told::Usable(0b11),
        Told::Attach(TRUNK),
    ];
    assert_eq!(rig.told(), order);
}

#[tokio::test(start_paused = true)]
async fn volumes_are_read_every_10_ms_and_queues_every_25() {
    let rig = Rig::start().await;
    rig.pass(Duration::from_millis(101)).await;
    let times = |what: Read| -> Vec<u128> {
        rig.world.with(|world| {
            let reads = world.reads.iter().filter(|(_, read)| *read == what);
            // The first volumes are where counting begins.
            let later = reads.filter(|(at, _)| !at.is_zero());
            later.map(|(at, _)| at.as_millis()).collect()
        })
    };
    let tens: Vec<u128> = (1..=10).map(|i| 10 * i).collect();
    assert_eq!(times(Read::Volumes), tens);
    assert_eq!(times(Read::Queues), [25, 50, 75, 100]);
}

#[tokio::test(start_paused = true)]
async fn the_bin_that_carried_most_leaves_a_queue_that_grows() {
    let rig = Rig::start().await;
    let table = rig.world.with(|world| world.table);
    let heavy = table.iter().position(|sublink| *sublink == 0).unwrap();
    rig.pass(Duration::from_millis(5)).await;
    rig.world.with(|world| world.volumes[heavy] = 1_000_000);
    rig.waits(11, 60_000);
    rig.waits(12, 0);
    rig.pass(Duration::from_millis(25)).await;
    let moved = rig.world.with(|world| world.table);
    let changed: Vec<usize> = (0..BINS).filter(|&bin| table[bin] != moved[bin]).collect();
    assert_eq!((changed, moved[heavy]), (vec![heavy], 1));
    assert_eq!(rig.status().await.reassignments, 1);
    rig.waits(11, 40_000);
    rig.told();
    rig.pass(Duration::from_secs(1)).await;
    assert_eq!(rig.told(), [], "half a buffer is no overload");
}

#[tokio::test(start_paused = true)]
async fn a_sublink_without_carrier_is_left_and_taken_again_at_once() {
    let rig = Rig::start().await;
    let usable = |rig: &Rig| -> Vec<u64> {
        let told = rig.told().into_iter();
        told.filter_map(|told| match told {
            Told::Usable(bits) => Some(bits),
            _ => None,
        })
        .collect()
    };
    assert_eq!(usable(&rig), [0b11]);
    for (running, bits) in [(false, 0b10), (true, 0b11)] {
        rig.change_host(|host| host.devices.get_mut("eth1").unwrap().running = running)
            .await;
        assert_eq!(usable(&rig), [bits]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_trunk_device_that_is_gone_is_looked_for_every_second_and_attached_when_it_is_back() {
    let rig = Rig::start().await;
    let trunk = rig.world.with(|world| world.host.devices["trunk0"].clone());
    rig.change_host(|host| drop(host.devices.remove("trunk0")))
        .await;
    rig.pass(Duration::from_secs(3)).await;
    assert_eq!(rig.status().await.troubles, ["trunk0: no such device"]);
    rig.told();
    rig.world.with(|world| {
        world.attached.clear();
        world.host.devices.insert("trunk0".to_owned(), trunk);
    });
    rig.pass(Duration::from_millis(1100)).await;
    assert!(rig.told().contains(&Told::Attach(TRUNK)));
    rig.pass(Duration::from_secs(2)).await;
    assert_eq!(rig.status().await.troubles, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn another_scheme_is_taken_while_it_runs_and_one_that_is_static_reads_no_queues() {
    let rig = Rig::start().await;
    let text = format!("{MINIMAL}scheme = \"SH\"\n");
    let configuration = Configuration::parse(Path::new("a.toml"), &text).unwrap();
    let (checked, said) = oneshot::channel();
    rig.order(Order::Check(Arc::new(configuration), checked))
        .await;
    said.await.unwrap().unwrap();
    let (reply, response) = oneshot::channel();
    rig.order(Order::Adopt(reply)).await;
    assert!(matches!(response.await.unwrap(), Response::Done));
    rig.world.with(|world| world.reads.clear());
    rig.pass(Duration::from_secs(5)).await;
    assert!(rig.world.with(|world| world.reads.is_empty()));
    assert_eq!(rig.status().await.scheme, "SH");
}

#[tokio::test(start_paused = true)]
async fn a_stop_detaches_the_program_before_the_host_is_put_back() {
    let rig = Rig::start().await;
    rig.told();
    rig.order(Order::Stop {
        keep_forwarding: false,
    })
    .await;
    rig.pass(MS).await;
    assert_eq!(rig.told(), [Told::Closed, Told::Restored]);
    rig.ended.await.unwrap();
}
