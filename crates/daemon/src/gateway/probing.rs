//! Sends the balancer's probes, and reports their answers.

use anabranch_core::{Family, LinkId, ProbeRequest, Question, Whom};

use super::{GatewayRole, Surroundings};
use crate::driver::ProbeOrder;
use crate::plane::Plane;
use crate::probe::{Answer, Inquiry, Via};

/// Maximum number of outstanding probes. More would mean that their deadlines do not work.
const PROBES_MAX: usize = 1024;

impl<P: Plane, S: Surroundings> GatewayRole<P, S> {
    pub(super) fn send(&mut self, order: ProbeOrder) {
        let asked = &order.request;
        let known = self.via(asked.link, asked.family);
        let known = known.filter(|_| self.probes.len() < PROBES_MAX);
        let Some((via, inquiry)) = known.zip(self.inquiry_of(asked)) else {
            return;
        };
        let answer = self.surroundings.probe(inquiry, via);
        self.probes.spawn(async move { (order, answer.await) });
    }

    /// Sends a survey probe. The programs recognise its answer.
    pub(super) fn ask(&mut self, question: &Question) -> anyhow::Result<()> {
        let family = Family::from(question.to.ip());
        let Some(via) = self.via(question.link, family) else {
            return Ok(());
        };
        let number = rand::random();
        let answered = self.plane.ask(question, self.asks_from, number)?;
        self.driver.handle_question(question, answered);
        self.surroundings
            .ask(question.to, self.asks_from, number, &via);
        Ok(())
    }

    /// The source address and device for a probe over a link; none without an address of the family.
    pub(super) fn via(&self, link: LinkId, family: Family) -> Option<Via> {
        let view = self.told.links.get(&link)?;
        Some(Via {
            device: Some(self.link_of(link)?.device.clone()),
            source: view.path(family)?.external,
            resolvers: view.paths[family].resolvers.clone(),
            untracked: self.surroundings.lets_untracked_pass(),
        })
    }

    fn inquiry_of(&self, asked: &ProbeRequest) -> Option<Inquiry> {
        let view = self.told.links.get(&asked.link);
        let view = view.map(|view| &view.paths[asked.family]);
        match asked.whom {
            Whom::Node => self.config.node.clone().map(Inquiry::Target),
            Whom::Target(index) => {
                let (target, _) = view?.targets.get(index)?;
                Some(Inquiry::Target(target.clone()))
            }
            Whom::Host { host, bytes } => {
                let host = *view?.far_hosts().get(host)?;
                Some(Inquiry::Length { host, bytes })
            }
        }
    }

    pub(super) fn probed(&mut self, (order, answer): (ProbeOrder, Option<Answer>)) {
        let now = self.shell.now();
        match answer {
            None => {}
            Some(Answer::Expected(round_trip)) => self.driver.handle_answer(now, order, round_trip),
            Some(Answer::Inconclusive) => self.driver.handle_inconclusive(order),
            Some(Answer::Wrong(words)) => {
                let path = (order.request.link, order.request.family);
                self.wrong_answers.insert(path, words);
                self.driver.handle_wrong_answer(now, order);
            }
        }
    }
}
