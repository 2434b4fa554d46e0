use tokio::sync::watch;

/// An order to end a run early: clones are the same order, so that whoever keeps one can give it.
#[derive(Clone, Debug)]
pub struct Stop(watch::Sender<bool>);

impl Default for Stop {
    fn default() -> Self {
        Self(watch::Sender::new(false))
    }
}

impl Stop {
    /// Gives the order, for good.
    pub fn order(&self) {
        self.0.send_replace(true);
    }

    /// Whether it has been given.
    pub fn is_ordered(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it has been given.
    pub(super) async fn ordered(&self) {
        let mut orders = self.0.subscribe();
        // The sender lives as long as this borrow of it.
        let _ = orders.wait_for(|ordered| *ordered).await;
    }
}
