//! A policy together with the text by which a user named it.

use std::fmt;

use anabranch_config::either::table;
use anabranch_config::{Either, read_either};
use serde::de::{Error, MapAccess};

use crate::algorithm::Algorithm;
use crate::tuple::Tuple;

/// A policy, and the name that is shown for it: that of the catalogue, the `name` of a tuple, or the tuple as it was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Typed<P> {
    /// The policy.
    pub policy: P,
    /// The name that is shown.
    pub name: String,
}

impl Typed<Algorithm> {
    /// `text` is the value in the file or on the command line. If it is a tuple without a name, on one line, it is shown as it was
    /// typed.
    #[must_use]
    pub fn as_typed(self, text: Option<&str>) -> Self {
        let text = text.map(str::trim).filter(|text| {
            text.starts_with('{') && !text.contains('\n') && self.name == self.policy.tuple()
        });
        match text {
            Some(text) => Typed {
                name: text.to_owned(),
                ..self
            },
            None => self,
        }
    }
}

impl<P> Typed<P> {
    /// Converts the policy and keeps the name.
    pub fn map<Q>(self, of: impl FnOnce(P) -> Q) -> Typed<Q> {
        Typed {
            policy: of(self.policy),
            name: self.name,
        }
    }
}

/// Named as in the catalogue, if it is there.
impl<P: fmt::Display> From<P> for Typed<P> {
    fn from(policy: P) -> Self {
        Typed {
            name: policy.to_string(),
            policy,
        }
    }
}

impl<P> fmt::Display for Typed<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

read_either!(Typed<Algorithm>);

/// A name of the catalogue, or a tuple.
impl Either for Typed<Algorithm> {
    const EXPECTED: &'static str =
        "the name of a policy, or a table of measure, dispatch, granularity and period";

    fn of_text<E: Error>(name: &str) -> Result<Self, E> {
        let algorithm: Algorithm = name.parse().map_err(E::custom)?;
        Ok(algorithm.into())
    }

    fn of_table<'de, A: MapAccess<'de>>(written: A) -> Result<Self, A::Error> {
        let tuple: Tuple = table(written)?;
        let policy = Algorithm::try_from(&tuple).map_err(A::Error::custom)?;
        let name = tuple.name.unwrap_or_else(|| policy.tuple());
        Ok(Typed { policy, name })
    }
}
