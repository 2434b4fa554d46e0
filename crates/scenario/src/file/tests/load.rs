use super::*;
use crate::Load;

#[test]
fn workloads_of_every_kind_are_read() {
    let load = |text: &str| read(&format!("{MINIMAL}\n{text}")).load;
    let pages = load(r#"workload = { kind = "pages", users = 3, files = 3, rounds = 20 }"#);
    let Load::Pages(pages) = pages else {
        panic!("{pages:?}")
    };
    assert_eq!(pages, anabranch_workload::Workload::page_rounds(3, 3, 20));
    let mix = load(
        r#"[workload]
        kind = "mix"
        users = 10
        class.ftp = { per_user = "0.5/s", size = { exponential = "600kB" } }
        class.http = { per_user = "1/s", size = "10kB", bursts = { burst = "1s", quiet = "2s", share = "60%" } }"#,
    );
    let Load::Arrivals(mix) = mix else {
        panic!("{mix:?}")
    };
    let anabranch_workload::Pattern::Mix(mix) = mix.pattern else {
        panic!("{mix:?}")
    };
    let names: Vec<_> = mix
        .classes
        .iter()
        .map(|class| class.name.as_str())
        .collect();
    assert_eq!((names, mix.duration_s), (vec!["ftp", "http"], 30.0));
    let trace = load(
        r#"workload = { kind = "trace", connections = 4774, bytes = "218MB", duration = "20s",
        size = { pareto = 1.2, min = "1kB", max = "100MB" }, direction = "up" }"#,
    );
    assert!(matches!(trace, Load::Arrivals(_)));
    let rows = load(
        r#"workload = { kind = "rows", rows = [{ at = "1s", size = "1kB" }, { at = "2s", size = 9, user = 1 }] }"#,
    );
    let Load::Arrivals(rows) = rows else {
        panic!("{rows:?}")
    };
    assert_eq!(rows.arrivals().count(), 2);
}

#[test]
fn a_run_gives_its_load_its_seed() {
    let file = parse(&format!("seeds = [42]\n{MINIMAL}")).unwrap();
    let Load::Pages(workload) = file.runs()[0].load() else {
        panic!("pages")
    };
    assert_eq!(workload.seed, 42);
}

#[test]
fn workloads_that_fit_into_no_memory_are_refused() {
    for (workload, problem) in [
        (
            "kind = \"continuous\", users = 1000000, downloads = 1000000",
            "1000000000000 transfers at once; at most 1000000",
        ),
        (
            "kind = \"pages\", users = 1000000, files = 1000000",
            "1000000000000 transfers at once; at most 1000000",
        ),
        (
            "kind = \"mix\", users = 1000000, class.x = { per_user = \"1000.0/s\", size = \"1kB\" }",
            "30000000000 transfers are expected; at most 10000000",
        ),
        (
            "kind = \"mix\", class.x = { per_user = \"1.0/s\", size = \"1kB\", bursts = { burst = \"1ns\", quiet = \"1ns\", share = \"50%\" } }",
            "35000000000 bursts; at most 1000000",
        ),
        (
            "kind = \"trace\", connections = 4294967295, bytes = \"5GB\", size = \"1kB\"",
            "4294967295 connections; at most 10000000",
        ),
    ] {
        let message = error_with(&format!("workload = {{ {workload} }}"));
        assert!(message.ends_with(problem), "{message}");
    }
    let classes = "users = 1000000, class = { a = X, b = X, c = X, d = X, e = X, f = X, g = X, h = X, i = X, j = X, k = X }";
    let rare = classes.replace('X', "{ per_user = \"0.00001/s\", size = \"1kB\" }");
    assert!(
        error_with(&format!("workload = {{ kind = \"mix\", {rare} }}"))
            .ends_with("11000000 users times classes; at most 10000000")
    );
}

#[test]
fn rows_are_within_the_run_and_of_users_that_can_be() {
    for (rows, problem) in [
        (
            "",
            "workload.rows: missing; write rows = [{ at = \"1s\", size = \"10kB\" }]",
        ),
        (
            "rows = [{ at = \"1s\", size = \"1kB\" }, { at = \"30s\", size = \"1kB\" }]",
            "workload.rows[1].at = \"30s\": is not before the end of the run, 30 s",
        ),
        (
            "rows = [{ at = \"1s\", size = \"1kB\", user = 4294967295 }]",
            "workload.rows[0].user = 4294967295: 0 to 999999 are allowed",
        ),
        (
            "rows = [{ at = \"1s\", size = \"1kB\", server = 1000000 }]",
            "workload.rows[0].server = 1000000: 0 to 999999 are allowed",
        ),
    ] {
        let comma = if rows.is_empty() { "" } else { ", " };
        let message = error_with(&format!("workload = {{ kind = \"rows\"{comma}{rows} }}"));
        assert_eq!(message, problem);
    }
}

#[test]
fn a_class_of_a_mix_asks_the_servers_it_names() {
    let mix = |own: &str| {
        format!(
            "{MINIMAL}\n[workload]\nkind = \"mix\"\nservers = 3\nclass.a = {{ per_user = \"9/s\", size = 9{own} }}"
        )
    };
    let asked = |own: &str| {
        let Load::Arrivals(plan) = read(&mix(own)).load else {
            panic!("arrivals")
        };
        let mut servers: Vec<u32> = plan.arrivals().map(|arrival| arrival.server.0).collect();
        servers.sort();
        servers.dedup();
        servers
    };
    assert_eq!(asked(""), [0, 1, 2]);
    assert_eq!(asked(", server = 1"), [1]);
    assert_eq!(asked(", server = [2, 0]"), [0, 2]);
    for (own, problem) in [
        ("3", "0 to 2 are allowed; servers says how many there are"),
        ("[0, 1, 0]", "a server is there twice"),
        ("[]", "an empty list; leave the key out for any"),
        ("-1", "servers are numbered from 0"),
    ] {
        let message = error(&mix(&format!(", server = {own}")));
        let start = format!("house.toml:8: workload.class.a.server = {own}: ");
        assert!(message.starts_with(&start), "{message}");
        assert!(message.ends_with(problem), "{message}");
    }
}
