//! Hashes by a secret: `bpf/policy/keyed.h` behind a safe API.

use std::net::SocketAddr;

use crate::abi::{BePort, Choice, Consistent, KEYED_WORDS, Secret};
use crate::ffi;

/// SipHash-1-3 of these words in little endian.
pub fn keyed(secret: &Secret, words: &[u64; KEYED_WORDS]) -> u64 {
    ffi::ab_keyed(secret, words)
}

/// [`Request::hash`](crate::Request::hash) of a client's connection to a service, where the choice goes by a hash: `ab_client_hash`.
pub fn client_hash(now: &Choice, secret: &Secret, client: SocketAddr, service: SocketAddr) -> u32 {
    let port = |end: SocketAddr| BePort::new(end.port());
    ffi::ab_client_hash(
        now,
        secret,
        &client.ip().into(),
        &service.ip().into(),
        port(client),
        port(service),
    )
}

/// The target to which a hash leads, be it usable or not: `ab_row_of`.
pub fn row_of(table: &Consistent, hash: u32) -> u16 {
    ffi::ab_row_of(table, hash)
}

#[cfg(test)]
mod tests {
    use std::hash::{DefaultHasher, Hasher};

    use proptest::prelude::*;

    use super::*;
    use crate::Granularity;

    fn secret(word: [u64; 2]) -> Secret {
        Secret { word }
    }

    proptest! {
        // The standard library's hasher is SipHash-1-3 by a secret of zeros.
        #[test]
        fn it_is_sip_hash_1_3(words: [u64; KEYED_WORDS]) {
            let mut standard = DefaultHasher::new();
            for word in words {
                standard.write(&word.to_le_bytes());
            }
            prop_assert_eq!(keyed(&secret([0, 0]), &words), standard.finish());
        }

        #[test]
        fn another_secret_gives_another_hash(words: [u64; KEYED_WORDS], one: [u64; 2], other: [u64; 2]) {
            prop_assume!(one != other);
            prop_assert_ne!(keyed(&secret(one), &words), keyed(&secret(other), &words));
        }

        #[test]
        fn all_connections_of_a_host_have_one_hash_where_the_choice_is_one_for_the_host(ports: [u16; 2], key: [u64; 2]) {
            prop_assume!(ports[0] != ports[1]);
            let hashes = |granularity: Granularity| {
                let now = Choice { granularity: granularity.into(), ..Choice::default() };
                let service = SocketAddr::from(([203, 0, 113, 10], 80));
                ports.map(|port| client_hash(&now, &secret(key), ([198, 51, 100, 7], port).into(), service))
            };
            let [one, other] = hashes(Granularity::Host);
            prop_assert_eq!(one, other);
            let [one, other] = hashes(Granularity::Connection);
            prop_assert_ne!(one, other);
        }
    }
}
