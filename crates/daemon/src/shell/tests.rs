//! Two roles of one instance, on virtual time: what becomes of one is nothing to the other.

use std::sync::Mutex;

use anabranch_api::{Client, Paths, RoleState, Status};
use anyhow::bail;
use tokio::sync::Notify;

use super::*;
use crate::config::{GATEWAY, TRUNK};
use crate::error::BadInput;

const BOTH: &str = r#"
lan = ["eth0"]
link.fiber = { device = "eth1", down = "500mbit", up = "100mbit" }
[trunk]
device = "trunk0"
sublink.a = { device = "eth2" }
"#;

/// What a role was told, and what it is to do wrong.
#[derive(Default)]
struct Fate {
    told: Vec<&'static str>,
    adopted: bool,
    fails_to_start: bool,
    refuses: bool,
    breaks: bool,
}

#[derive(Clone, Default)]
struct Shared(Arc<(Mutex<Fate>, Notify)>);

impl Shared {
    fn with<T>(&self, what: impl FnOnce(&mut Fate) -> T) -> T {
        what(&mut self.0.0.lock().unwrap())
    }

    fn tell(&self, what: &'static str) {
        self.with(|fate| fate.told.push(what));
    }

    /// What was told since the last call.
    fn told(&self) -> Vec<&'static str> {
        self.with(|fate| std::mem::take(&mut fate.told))
    }

    fn break_down(&self) {
        self.with(|fate| fate.breaks = true);
        self.0.1.notify_one();
    }
}

struct Fake<const IS_GATEWAY: bool> {
    shell: Shell,
    fate: Shared,
}

impl<const IS_GATEWAY: bool> Fake<IS_GATEWAY> {
    fn opened(fate: &Shared) -> Opened {
        let fake = Self {
            shell: Shell::new("a", fate.with(|fate| fate.adopted)),
            fate: fate.clone(),
        };
        Opened::new(Ok(fake))
    }
}

impl<const IS_GATEWAY: bool> Role for Fake<IS_GATEWAY> {
    type Config = ();
    const NAME: &'static str = if IS_GATEWAY { GATEWAY } else { TRUNK };
    const AT_WORK: &'static str = "at work";

    fn span() -> Span {
        Span::none()
    }

    fn config_of(_: &Configuration) -> Option<()> {
        Some(())
    }

    fn answers(request: &Request) -> bool {
        IS_GATEWAY && matches!(request, Request::Flows { .. })
    }

    async fn start(&mut self) -> anyhow::Result<()> {
        if self.fate.with(|fate| fate.fails_to_start) {
            bail!("no room");
        }
        self.fate.tell("started");
        Ok(())
    }

    fn shell(&self) -> &Shell {
        &self.shell
    }

    fn troubles(&self) -> Vec<String> {
        Vec::new()
    }

    async fn event(&mut self) -> anyhow::Result<()> {
        self.fate.0.1.notified().await;
        if self.fate.with(|fate| fate.breaks) {
            bail!("maps: gone");
        }
        Ok(())
    }

    fn tick(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    fn turn_at(&self) -> Instant {
        Instant::now() + TICK
    }

    async fn turn(&mut self) -> anyhow::Result<()> {
        Ok(())
    }

    async fn answer(&mut self, (request, reply): Call) -> anyhow::Result<()> {
        let response = match request {
            Request::Status => Response::Status(Box::new(self.shell.status())),
            _ => Response::Done,
        };
        let _ = reply.send(response);
        Ok(())
    }

    async fn check_config(&mut self, (): &()) -> Result<(), Error> {
        match self.fate.with(|fate| fate.refuses) {
            true => Err(BadInput::new(format!("the {} refuses", Self::NAME)).into()),
            false => Ok(()),
        }
    }

    async fn adopt_config(
        &mut self,
        (): (),
        reply: oneshot::Sender<Response>,
    ) -> anyhow::Result<()> {
        self.fate.tell("adopted");
        let _ = reply.send(Response::Done);
        Ok(())
    }

    async fn close(self) -> anyhow::Result<()> {
        self.fate.tell("closed");
        Ok(())
    }
}

type Gateway = Fake<true>;
type Trunk = Fake<false>;

/// An instance of both, with its file.
struct Instance {
    dir: tempfile::TempDir,
    paths: Paths,
    gateway: Shared,
    trunk: Shared,
    signals: mpsc::Sender<Signal>,
    taken: Option<mpsc::Receiver<Signal>>,
}

impl Instance {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (signals, taken) = mpsc::channel(4);
        let instance = Self {
            paths: Paths::under(dir.path(), dir.path(), "a").unwrap(),
            dir,
            gateway: Shared::default(),
            trunk: Shared::default(),
            signals,
            taken: Some(taken),
        };
        instance.write(BOTH);
        instance
    }

    fn file(&self) -> std::path::PathBuf {
        self.dir.path().join("both.toml")
    }

    fn write(&self, text: &str) {
        std::fs::write(self.file(), text).unwrap();
    }

    /// Serves it while `meanwhile` goes on, then stops it.
    async fn serve(&mut self, meanwhile: impl AsyncFnOnce(&Self)) -> (bool, Result<(), Error>) {
        let roles = vec![Gateway::opened(&self.gateway), Trunk::opened(&self.trunk)];
        let (file, paths) = (self.file(), self.paths.clone());
        let taken = self.taken.take().expect("served once");
        let mut is_ready = false;
        let served = serve(roles, &file, &paths, taken, || is_ready = true);
        let meanwhile = async {
            meanwhile(self).await;
            // It may have ended by itself.
            let _ = self.signals.send(Signal::Stop).await;
        };
        let (served, ()) = tokio::join!(served, meanwhile);
        (is_ready, served)
    }

    async fn ask(&self, request: Request) -> Response {
        let socket = self.paths.socket();
        let asked = tokio::task::spawn_blocking(move || {
            let mut client = loop {
                match Client::connect(&socket) {
                    Ok(client) => break client,
                    Err(_) => std::thread::yield_now(),
                }
            };
            client.call(&request).unwrap()
        });
        asked.await.unwrap()
    }

    async fn status(&self) -> Status {
        match self.ask(Request::Status).await {
            Response::Status(status) => *status,
            other => panic!("{other:?}"),
        }
    }

    /// Names of the roles that do not work, with why.
    async fn failed(&self) -> Vec<(String, String)> {
        let roles = self.status().await.roles.into_iter();
        let failed = roles.filter(|role| role.state == RoleState::Failed);
        failed.map(|role| (role.name, role.why.unwrap())).collect()
    }
}

#[tokio::test]
async fn both_start_and_are_told_of_and_both_stop() {
    let mut instance = Instance::new();
    let (is_ready, served) = instance
        .serve(async |instance| {
            let roles = instance.status().await.roles;
            let names: Vec<_> = roles.iter().map(|role| &role.name[..]).collect();
            assert_eq!(names, [GATEWAY, TRUNK]);
            assert_eq!(instance.failed().await, []);
            let flows = instance.ask(Request::Flows { limit: 1 }).await;
            assert!(matches!(flows, Response::Done), "{flows:?}");
        })
        .await;
    served.unwrap();
    assert!(is_ready);
    for role in [&instance.gateway, &instance.trunk] {
        assert_eq!(role.told(), ["started", "closed"]);
    }
}

#[tokio::test]
async fn one_that_cannot_start_is_undone_unless_it_was_adopted_and_the_other_works() {
    for (adopted, told) in [(false, &["closed"][..]), (true, &[])] {
        let mut instance = Instance::new();
        instance.trunk.with(|fate| {
            (fate.fails_to_start, fate.adopted) = (true, adopted);
        });
        let (is_ready, served) = instance
            .serve(async |instance| {
                let failed = instance.failed().await;
                assert_eq!(failed, [(TRUNK.to_owned(), "no room".to_owned())]);
                assert_eq!(instance.gateway.told(), ["started"]);
            })
            .await;
        assert!(is_ready);
        assert_eq!(served.unwrap_err().to_string(), "no room");
        assert_eq!(instance.trunk.told(), told);
        assert_eq!(instance.gateway.told(), ["closed"]);
    }
}

#[tokio::test]
async fn one_that_breaks_down_is_told_of_and_the_other_goes_on() {
    let mut instance = Instance::new();
    instance
        .serve(async |instance| {
            instance.status().await;
            instance.gateway.break_down();
            while instance.failed().await.is_empty() {}
            let flows = instance.ask(Request::Flows { limit: 1 }).await;
            let Response::Failed { message } = flows else {
                panic!("{flows:?}")
            };
            assert_eq!(message, "the gateway has failed: maps: gone");
            let reloaded = instance.ask(Request::Reload).await;
            assert!(matches!(reloaded, Response::Done), "{reloaded:?}");
            assert_eq!(instance.trunk.told(), ["started", "adopted"]);
        })
        .await
        .1
        .unwrap_err();
    assert_eq!(instance.trunk.told(), ["closed"]);
}

#[tokio::test]
async fn without_a_role_that_works_the_instance_has_failed() {
    let mut instance = Instance::new();
    let (_, served) = instance
        .serve(async |instance| {
            instance.status().await;
            instance.gateway.break_down();
            instance.trunk.break_down();
            while instance.paths.socket().exists() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    assert_eq!(served.unwrap_err().to_string(), "maps: gone");

    let mut instance = Instance::new();
    for role in [&instance.gateway, &instance.trunk] {
        role.with(|fate| fate.fails_to_start = true);
    }
    let (is_ready, served) = instance.serve(async |_| ()).await;
    assert!(!is_ready && served.is_err());
}

#[tokio::test]
async fn a_file_that_one_role_refuses_changes_nothing_of_the_other() {
    let mut instance = Instance::new();
    let (_, served) = instance
        .serve(async |instance| {
            let refused = async || match instance.ask(Request::Reload).await {
                Response::Refused { message } => message,
                other => panic!("{other:?}"),
            };
            instance.trunk.with(|fate| fate.refuses = true);
            assert_eq!(refused().await, "the trunk refuses");
            instance.trunk.with(|fate| fate.refuses = false);

            instance.write(&format!("{BOTH}scheme = \"FIFO\"\n"));
            let message = refused().await;
            assert!(message.contains("trunk.scheme = \"FIFO\""), "{message}");

            instance.write(BOTH.split("[trunk]").next().unwrap());
            let message = refused().await;
            let says = "both.toml: it is of a gateway now, and this instance runs a gateway and a trunk: start the daemon again for that";
            assert!(message.ends_with(says), "{message}");
            for role in [&instance.gateway, &instance.trunk] {
                assert_eq!(role.told(), ["started"]);
            }
            instance.write(BOTH);
            let reloaded = instance.ask(Request::Reload).await;
            assert!(matches!(reloaded, Response::Done), "{reloaded:?}");
            for role in [&instance.gateway, &instance.trunk] {
                assert_eq!(role.told(), ["adopted"]);
            }
        })
        .await;
    served.unwrap();
}
