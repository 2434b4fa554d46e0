//! Values that may be written in several ways.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

/// A value that may be written in several ways; in the others it is of the wrong type. [`read_either`](crate::read_either) has
/// serde read it.
pub trait Either: Sized {
    /// What messages say that is wanted.
    const EXPECTED: &'static str;

    /// Of `"text"`.
    fn of_text<E: Error>(text: &str) -> Result<Self, E> {
        Err(E::invalid_type(Unexpected::Str(text), &Self::EXPECTED))
    }

    /// Of `true` or `false`.
    fn of_bool<E: Error>(value: bool) -> Result<Self, E> {
        Err(E::invalid_type(Unexpected::Bool(value), &Self::EXPECTED))
    }

    /// Of `7`.
    fn of_whole<E: Error>(number: i64) -> Result<Self, E> {
        Err(E::invalid_type(Unexpected::Signed(number), &Self::EXPECTED))
    }

    /// Of `0.7`.
    fn of_decimal<E: Error>(number: f64) -> Result<Self, E> {
        Err(E::invalid_type(Unexpected::Float(number), &Self::EXPECTED))
    }

    /// Of `[…]`: see [`list`].
    fn of_list<'de, A: SeqAccess<'de>>(_: A) -> Result<Self, A::Error> {
        Err(A::Error::invalid_type(Unexpected::Seq, &Self::EXPECTED))
    }

    /// Of `{ … }`: see [`table`].
    fn of_table<'de, A: MapAccess<'de>>(_: A) -> Result<Self, A::Error> {
        Err(A::Error::invalid_type(Unexpected::Map, &Self::EXPECTED))
    }
}

struct AnyOf<T>(PhantomData<T>);

impl<'de, T: Either> Visitor<'de> for AnyOf<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        T::of_text(text)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<T, E> {
        T::of_bool(value)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        T::of_whole(number)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        T::of_decimal(number)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<T, A::Error> {
        T::of_list(list)
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<T, A::Error> {
        T::of_table(table)
    }
}

/// Reads a value by however it is written.
pub fn either<'de, T: Either, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_any(AnyOf(PhantomData))
}

/// A list, read as serde reads `Vec<T>`.
pub fn list<'de, T: Deserialize<'de>, A: SeqAccess<'de>>(list: A) -> Result<Vec<T>, A::Error> {
    Vec::deserialize(SeqAccessDeserializer::new(list))
}

/// A table, read as serde reads `T`.
pub fn table<'de, T: Deserialize<'de>, A: MapAccess<'de>>(table: A) -> Result<T, A::Error> {
    T::deserialize(MapAccessDeserializer::new(table))
}

/// Has serde read values of these types as [`Either`] says.
#[macro_export]
macro_rules! read_either {
    ($($kind:ty),+ $(,)?) => {$(
        impl<'de> serde::Deserialize<'de> for $kind {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::either::either(deserializer)
            }
        }
    )+};
}
