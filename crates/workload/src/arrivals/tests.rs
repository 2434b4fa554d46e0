use super::*;

const WEB: Size = Size::BoundedPareto {
    alpha: 1.2,
    min_bytes: 1_000,
    max_bytes: 10_000_000,
};

fn class(name: &str, per_user_per_s: f64, size: Size) -> Class {
    Class {
        name: name.to_owned(),
        per_user_per_s,
        size,
        servers: Vec::new(),
        direction: Direction::Down,
        bursts: None,
    }
}

fn mix() -> Mix {
    Mix {
        users: 20,
        servers: 4,
        duration_s: 200.0,
        exact: false,
        classes: vec![
            class("http", 0.5, Size::Exponential { mean_bytes: 1e4 }),
            class("mail", 0.1, WEB),
        ],
    }
}

fn of_mix(mix: &Mix, seed: u64) -> Vec<Arrival> {
    let pattern = Pattern::Mix(mix.clone());
    ArrivalPlan { pattern, seed }.arrivals().collect()
}

/// Trace 1 of Guo's table II, compressed to one hour.
fn trace() -> Trace {
    Trace {
        connections: 4_774,
        bytes: 218_000_000,
        duration_s: 3_600.0,
        size: WEB,
        direction: Direction::Up,
        users: 50,
        servers: 100,
        bursts: Some(Bursts {
            burst_s: 20.0,
            quiet_s: 60.0,
            share: 0.7,
        }),
    }
}

fn of_trace(trace: &Trace, seed: u64) -> Vec<Arrival> {
    let pattern = Pattern::Trace(trace.clone());
    ArrivalPlan { pattern, seed }.arrivals().collect()
}

/// Variance over mean of the arrivals per ten seconds: 1 for a Poisson process.
fn dispersion(arrivals: &[Arrival], duration_s: f64) -> f64 {
    let mut counts = vec![0f64; (duration_s / 10.0) as usize];
    for arrival in arrivals {
        counts[(arrival.at.as_secs_f64() / 10.0) as usize] += 1.0;
    }
    let mean = counts.iter().sum::<f64>() / counts.len() as f64;
    let squares: f64 = counts.iter().map(|count| (count - mean).powi(2)).sum();
    squares / counts.len() as f64 / mean
}

#[test]
fn a_mix_begins_as_many_transfers_and_offers_as_much_load_as_it_says() {
    let mix = Mix {
        users: 400,
        ..mix()
    };
    let arrivals = of_mix(&mix, 1);
    let http = arrivals
        .iter()
        .filter(|arrival| arrival.class == ClassId(0));
    // 400 users × 0.5/s × 200 s: standard deviation 200.
    let expected = 40_000.0;
    assert!((http.clone().count() as f64 - expected).abs() < 4.0 * 200.0);
    let sent_bps = http.map(|arrival| arrival.bytes).sum::<u64>() as f64 * 8.0 / 200.0;
    let http_only = Mix {
        classes: vec![mix.classes[0].clone()],
        ..mix
    };
    let offered_bps = http_only.offered_bps(Direction::Down);
    assert!(
        (sent_bps / offered_bps - 1.0).abs() < 0.03,
        "{sent_bps} of {offered_bps}"
    );
    assert_eq!(http_only.offered_bps(Direction::Up), 0.0);
}

#[test]
fn arrivals_come_in_order_within_the_duration_from_every_user_to_every_server() {
    let arrivals = of_mix(&mix(), 1);
    assert!(arrivals.is_sorted_by_key(|arrival| arrival.at));
    assert!(arrivals.iter().all(|arrival| arrival.at.as_secs() < 200));
    for user in 0..20 {
        assert!(arrivals.iter().any(|arrival| arrival.user == UserId(user)));
    }
    for server in 0..4 {
        assert!(
            arrivals
                .iter()
                .any(|arrival| arrival.server == RemoteServerId(server))
        );
    }
}

#[test]
fn the_same_seed_draws_the_same_arrivals_and_another_seed_others() {
    assert_eq!(of_mix(&mix(), 1), of_mix(&mix(), 1));
    assert_ne!(of_mix(&mix(), 1), of_mix(&mix(), 2));
    assert_eq!(of_trace(&trace(), 1), of_trace(&trace(), 1));
    assert_ne!(of_trace(&trace(), 1), of_trace(&trace(), 2));
}

#[test]
fn adding_a_user_or_a_class_changes_nothing_for_the_others() {
    let mut few = mix();
    few.classes[0].bursts = trace().bursts;
    let mut more = Mix {
        users: 21,
        ..few.clone()
    };
    more.classes.push(class("ftp", 0.2, Size::Fixed(600_000)));
    let kept: Vec<Arrival> = of_mix(&more, 5)
        .into_iter()
        .filter(|arrival| arrival.user.0 < 20 && arrival.class.0 < 2)
        .collect();
    assert_eq!(kept, of_mix(&few, 5));
}

#[test]
fn a_class_with_servers_of_its_own_asks_those_and_changes_nothing_for_the_others() {
    for exact in [false, true] {
        let plain = Mix { exact, ..mix() };
        let mut own = plain.clone();
        own.classes[0].servers = vec![RemoteServerId(7), RemoteServerId(2)];
        assert_eq!(Pattern::Mix(own.clone()).servers(), 8);
        let (plain, own) = (of_mix(&plain, 5), of_mix(&own, 5));
        let of_class = |all: &[Arrival], class| {
            let those = all.iter().filter(|arrival| arrival.class == ClassId(class));
            those.copied().collect::<Vec<_>>()
        };
        assert_eq!(of_class(&own, 1), of_class(&plain, 1));
        let asked = of_class(&own, 0);
        let of_server = |server| {
            asked
                .iter()
                .filter(move |a| a.server == RemoteServerId(server))
        };
        assert_eq!(of_server(7).count() + of_server(2).count(), asked.len());
        assert!(of_server(7).count() > 0 && of_server(2).count() > 0);
    }
}

#[test]
fn bursts_crowd_arrivals_and_keep_their_mean() {
    let mut long = Mix {
        duration_s: 20_000.0,
        ..mix()
    };
    long.classes.truncate(1);
    let smooth = of_mix(&long, 3);
    long.classes[0].bursts = trace().bursts;
    let crowded = of_mix(&long, 3);
    let ratio = crowded.len() as f64 / smooth.len() as f64;
    assert!((ratio - 1.0).abs() < 0.1, "{ratio}");
    let (smooth, crowded) = (
        dispersion(&smooth, 20_000.0),
        dispersion(&crowded, 20_000.0),
    );
    assert!((0.9..1.1).contains(&smooth), "Poisson: {smooth}");
    assert!(crowded > 10.0, "bursty: {crowded}");
}

#[test]
fn a_trace_meets_its_totals_exactly_for_every_seed() {
    let plan = trace();
    for seed in 0..20 {
        let rows = of_trace(&plan, seed);
        assert_eq!(rows.len(), 4_774);
        assert_eq!(rows.iter().map(|row| row.bytes).sum::<u64>(), 218_000_000);
        assert!(
            rows.iter()
                .all(|row| row.bytes > 0 && row.at.as_secs_f64() < 3_600.0)
        );
        assert!(rows.is_sorted_by_key(|row| row.at));
    }
}

#[test]
fn the_smallest_trace_gives_each_connection_one_byte() {
    let plan = Trace {
        connections: 9,
        bytes: 9,
        ..trace()
    };
    assert!(of_trace(&plan, 1).iter().all(|row| row.bytes == 1));
}

/// Hill 1975: the mean logarithmic excess over the k-th largest is 1/α for a Pareto tail.
#[test]
fn the_tail_of_a_trace_has_the_index_it_was_given() {
    let plan = Trace {
        connections: 100_000,
        bytes: 4_000_000_000,
        size: Size::BoundedPareto {
            alpha: 1.2,
            min_bytes: 1_000,
            max_bytes: 100_000_000_000,
        },
        ..trace()
    };
    let mut sizes: Vec<u64> = of_trace(&plan, 4).iter().map(|row| row.bytes).collect();
    sizes.sort_unstable_by_key(|&bytes| Reverse(bytes));
    let k = 5_000;
    let excess: f64 = sizes[..k]
        .iter()
        .map(|&bytes| (bytes as f64 / sizes[k] as f64).ln())
        .sum();
    let alpha = k as f64 / excess;
    // The estimator's standard error is α/√k = 0.017.
    assert!((alpha - 1.2).abs() < 0.06, "{alpha}");
}

#[test]
fn rows_come_out_in_the_order_of_time() {
    let row = |at_s, bytes| Arrival {
        at: Duration::from_secs(at_s),
        user: UserId(1),
        server: RemoteServerId(0),
        class: ClassId(0),
        bytes,
        direction: Direction::Down,
    };
    let pattern = Pattern::Rows(vec![row(2, 5), row(1, 6)]);
    assert_eq!((pattern.users(), pattern.servers()), (2, 1));
    let plan = ArrivalPlan { pattern, seed: 0 };
    let bytes: Vec<u64> = plan.arrivals().map(|arrival| arrival.bytes).collect();
    assert_eq!(bytes, [6, 5]);
}

#[test]
fn what_makes_no_sense_is_refused_with_its_class_key_and_value() {
    let mut bad = mix();
    bad.classes[1].per_user_per_s = 0.0;
    assert_eq!(
        Pattern::Mix(bad).check().unwrap_err().to_string(),
        "class \"mail\": per_user_per_s = 0 is not possible; must be greater than 0"
    );
    let mut bad = trace();
    bad.bytes = 4_000;
    assert_eq!(
        Pattern::Trace(bad).check().unwrap_err().to_string(),
        "the trace has 4774 connections and 4000 bytes; each needs at least one"
    );
    let mut bad = trace();
    bad.bursts.as_mut().unwrap().share = 1.0;
    let message = Pattern::Trace(bad).check().unwrap_err().to_string();
    assert!(
        message.starts_with("share = 1 is not possible"),
        "{message}"
    );
    assert_eq!(Pattern::Trace(trace()).check(), Ok(()));
}

#[test]
fn an_exact_mix_has_the_expected_transfers_and_bytes_of_every_class_whatever_the_seed() {
    let exact = Mix {
        exact: true,
        ..mix()
    };
    let totals = |seed| {
        let arrivals = of_mix(&exact, seed);
        assert!(arrivals.is_sorted_by_key(|arrival| arrival.at));
        [0, 1].map(|class| {
            let of_class = arrivals.iter().filter(|arrival| arrival.class.0 == class);
            let bytes: u64 = of_class.clone().map(|arrival| arrival.bytes).sum();
            (of_class.count(), bytes)
        })
    };
    let web_bytes = (400.0 * WEB.mean_bytes()).round() as u64;
    for seed in 1..=3 {
        assert_eq!(totals(seed), [(2_000, 20_000_000), (400, web_bytes)]);
    }
    assert_ne!(of_mix(&exact, 1), of_mix(&exact, 2));
}

#[test]
fn an_exact_mix_whose_class_expects_no_transfer_is_refused_by_name() {
    let mut rare = mix();
    rare.exact = true;
    rare.classes[1].per_user_per_s = 1e-6;
    let error = Pattern::Mix(rare).check().unwrap_err().to_string();
    assert!(error.starts_with("class \"mail\": "), "{error}");
}
