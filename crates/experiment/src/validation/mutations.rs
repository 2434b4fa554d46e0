use crate::Mutation;

pub(super) const ALL: &[Mutation] = &[
    topics("slow-server", "servers a tenth slower than theory is told"),
    topics("any-queue", "any queue where the shortest is to be joined"),
    topics(
        "lost-bits",
        "the highest and the lowest bit of the flow hash are always 0",
    ),
    topics("one-loss", "a loss of 0.1 % at every point"),
    topics(
        "wide-curve",
        "RED begins at half its least queue and ends at twice its most",
    ),
    topics("far", "ways four times as long as formulas are told"),
    topics("reno", "Reno in place of CUBIC"),
    topics("no-hystart", "slow start without HyStart++"),
    topics(
        "other-newreno",
        "each variant of NewReno in place of the other",
    ),
    topics("other-recovery", "SACK in place of RACK, and RACK of SACK"),
    topics("slow-codel", "CoDel with twice the interval"),
    topics("no-ecn", "senders that do not speak ECN"),
];

const fn topics(name: &'static str, what: &'static str) -> Mutation {
    Mutation {
        name,
        what,
        topics: true,
        ..Mutation::NONE
    }
}
