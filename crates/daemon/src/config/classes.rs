//! Reads rules and the default class, and the former spelling of their keys.

use anabranch_config::Source;
use anabranch_core::rules::file::{self as classes, DefaultTable, Remark, RuleTable, Site};
use anabranch_core::rules::{Class, Rule, review_packets};
use anabranch_core::{Algorithm, Typed};

use super::file::{File, SessionsTable};
use crate::error::BadInput;

/// The rules, and the default class.
pub(super) struct Classes {
    pub default: Class,
    pub rules: Vec<Rule>,
    pub remarks: Vec<Remark>,
}

impl Classes {
    pub fn read(
        source: &Source<'_>,
        policy: &Typed<Algorithm>,
        default: DefaultTable,
        tables: Vec<RuleTable>,
        site: Site<'_>,
    ) -> Result<Self, BadInput> {
        let source = source.within(&[]).numbered();
        let default = classes::default_class(&source, default, site)?;
        let rules = classes::rules(&source, tables, site)?;
        review_packets(
            &source,
            (policy.policy, &["policy"]),
            &default,
            &rules,
            site.links,
        )?;
        let remarks = [
            classes::review(&source, &rules, site.lan)?,
            classes::review_own(&source, &rules)?,
        ]
        .concat();
        Ok(Self {
            default,
            rules,
            remarks,
        })
    }
}

/// Moves keys with the former spelling to their present place, with a warning for each.
pub(super) fn take_former(source: &Source<'_>, file: &mut File) -> Result<Vec<Remark>, BadInput> {
    let numbered = source.within(&[]).numbered();
    let warn = |key: &[&str], now: &str| {
        let value = source.text(key).unwrap_or_default();
        let problem = format!("is a key of the default class; write {now} = {value}");
        Remark::Warning(numbered.bad(key, problem).to_string())
    };
    let mut warnings = Vec::new();
    for (name, link) in &file.link {
        if link.on_return.is_some() {
            warnings.push(warn(&["link", name, "on_return"], "default.on_return"));
        }
    }
    let SessionsTable { stick, except } = std::mem::take(&mut file.sessions);
    if stick.is_some() {
        warnings.push(warn(&["sessions", "stick"], "default.stick"));
        former(source, "stick", &mut file.default.stick, stick)?;
    }
    if except.is_some() {
        let ports = except.as_deref().unwrap_or_default();
        classes::check_except(ports)
            .map_err(|problem| source.bad(&["sessions", "except"], problem))?;
        warnings.push(warn(&["sessions", "except"], "default.except"));
        former(source, "except", &mut file.default.except, except)?;
    }
    Ok(warnings)
}

fn former<T>(
    source: &Source<'_>,
    key: &str,
    present: &mut Option<T>,
    former: Option<T>,
) -> Result<(), BadInput> {
    if present.is_some() {
        let problem = format!("default.{key} is there, too; leave this out");
        return Err(source.bad(&["sessions", key], problem));
    }
    *present = former;
    Ok(())
}
