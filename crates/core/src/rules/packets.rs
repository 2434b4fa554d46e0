//! Checks of classes with granularity `packet`: where it is possible, and which keys have no effect
//! with it.

use anabranch_config::{BadInput, Source};

use super::Rule;
use super::class::Class;
use crate::algorithm::Algorithm;
use crate::link::LinkSpec;

/// A class with the settings that it inherits.
struct InForce<'a> {
    class: &'a Class,
    /// Its table in the file.
    table: Vec<&'a str>,
    algorithm: Algorithm,
    /// The key that sets its granularity.
    says: Vec<&'a str>,
}

/// Refuses granularity `packet` if packets would leave with several sources, and keys without an effect in such a class.
/// `policy` is that of classes without one, and is set by the key `said`.
pub fn review_packets(
    source: &Source<'_>,
    (policy, said): (Algorithm, &[&str]),
    default: &Class,
    rules: &[Rule],
    links: &[LinkSpec],
) -> Result<(), BadInput> {
    let indices: Vec<String> = (0..rules.len()).map(|index| index.to_string()).collect();
    let default = InForce::of(default, vec!["default"], policy, said.to_vec());
    let of_rules = rules.iter().zip(&indices).map(|(rule, index)| {
        let table = vec!["rule", index];
        InForce::of(&rule.class, table, default.algorithm, default.says.clone())
    });
    let of_rules: Vec<InForce<'_>> = of_rules.collect();
    for class in of_rules.iter().filter(|class| class.is_per_packet()) {
        class.check_links(source, links)?;
        class.check_measure(source)?;
        class.check_keys(source)?;
    }
    if default.is_per_packet() {
        default.check_links(source, links)?;
        default.check_measure(source)?;
        // What rules do not set is as in the default class.
        if of_rules.iter().all(InForce::is_per_packet) {
            default.check_keys(source)?;
        }
    }
    Ok(())
}

impl<'a> InForce<'a> {
    /// `inherited` is the algorithm of classes that set none, and is set by the key `said`.
    fn of(
        class: &'a Class,
        table: Vec<&'a str>,
        inherited: Algorithm,
        said: Vec<&'a str>,
    ) -> InForce<'a> {
        let at = |key| [&table[..], &[key]].concat();
        let says = match (class.granularity, &class.policy) {
            (Some(_), _) => at("granularity"),
            (None, Some(_)) => at("policy"),
            (None, None) => said,
        };
        InForce {
            algorithm: class.algorithm(inherited),
            says,
            class,
            table,
        }
    }

    fn is_per_packet(&self) -> bool {
        self.algorithm.is_per_packet()
    }

    fn name(&self) -> &str {
        &self.class.name
    }

    fn check_links(&self, source: &Source<'_>, links: &[LinkSpec]) -> Result<(), BadInput> {
        let tiers = self.class.tiers.as_ref();
        let is_used = |link: &&LinkSpec| {
            tiers.is_none_or(|tiers| tiers.iter().any(|tier| tier.contains(&link.name)))
        };
        let used = links.iter().filter(is_used);
        let translating: Vec<&str> = used
            .filter(|link| !link.routed)
            .map(|link| &link.name[..])
            .collect();
        if translating.is_empty() {
            return Ok(());
        }
        let links = translating.join(", ");
        let problem = format!(
            "class {} chooses for each packet, and the packets of a connection must have one source: of its links, {links} \
             translate; name others in its links, give these nat = false, or choose another granularity",
            self.name()
        );
        Err(source.bad(&self.says, problem))
    }

    fn check_measure(&self, source: &Source<'_>) -> Result<(), BadInput> {
        let measure = self.algorithm.measure;
        if !measure.counts_live_flows() {
            return Ok(());
        }
        let problem = format!(
            "class {} chooses for each packet and keeps no flows, which the measure {:?} of its policy counts; choose another \
             policy: \"dispatched\" counts packets there",
            self.name(),
            measure.name
        );
        Err(source.bad(&self.says, problem))
    }

    /// Refuses keys about flows, and about remembered choices.
    fn check_keys(&self, source: &Source<'_>) -> Result<(), BadInput> {
        let Class {
            flows_per_host,
            on_return,
            stick,
            except,
            forget,
            ..
        } = self.class;
        let said = [
            ("flows_per_host", flows_per_host.is_some()),
            ("on_return", on_return.is_some()),
            ("stick", stick.is_some()),
            ("except", except.is_some()),
            ("forget", forget.is_some()),
        ];
        let Some((key, _)) = said.into_iter().find(|(_, is_said)| *is_said) else {
            return Ok(());
        };
        let problem = format!(
            "class {} chooses for each packet: it keeps no flows and remembers no choice; leave this out",
            self.name()
        );
        Err(source.bad(&[&self.table[..], &[key]].concat(), problem))
    }
}
