//! A policy together with the text by which a user named it.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

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

/// A name of the catalogue, or a tuple.
impl<'de> Deserialize<'de> for Typed<Algorithm> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameOrTuple;

        impl<'de> Visitor<'de> for NameOrTuple {
            type Value = Typed<Algorithm>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "the name of a policy, or a table of measure, dispatch, granularity and period",
                )
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
                let algorithm: Algorithm = name.parse().map_err(E::custom)?;
                Ok(algorithm.into())
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                let tuple = Tuple::deserialize(MapAccessDeserializer::new(map))?;
                let policy = Algorithm::try_from(&tuple).map_err(A::Error::custom)?;
                let name = tuple.name.unwrap_or_else(|| policy.tuple());
                Ok(Typed { policy, name })
            }
        }

        deserializer.deserialize_any(NameOrTuple)
    }
}
