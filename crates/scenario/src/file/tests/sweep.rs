use super::*;

#[test]
fn a_sweep_is_every_combination_and_every_run_has_its_own_hash() {
    let text = format!(
        "policies = [\"RR\", \"WSDM\"]\nseeds = 3\n{MINIMAL}\n[sweep]\nlink.fiber.down = [\"10mbit\", \"40mbit\"]\n\
         \"link.lte.delay\" = [\"22ms\", \"50ms\", \"90ms\"]\n"
    );
    let file = parse(&text).unwrap();
    let runs = file.runs();
    assert_eq!(runs.len(), 2 * 3 * 6);
    let mut hashes: Vec<_> = runs.iter().map(|run| run.hash.clone()).collect();
    hashes.sort();
    hashes.dedup();
    assert_eq!(hashes.len(), runs.len(), "no two runs are the same");
    let last = runs.last().unwrap();
    let point = [("link.fiber.down", "40mbit"), ("link.lte.delay", "90ms")];
    assert_eq!(
        last.point,
        point.map(|(key, value)| (key.to_owned(), value.to_owned()))
    );
    assert_eq!(site(&last.scenario).links[1].down.delay.as_millis(), 90);
    assert_eq!(site(&last.scenario).links[0].down.rate_bps, 40_000_000);
    assert_eq!(parse(&text).unwrap().runs(), runs);
}

#[test]
fn a_hash_is_of_what_decides_the_result() {
    let hash = |text: &str| parse(text).unwrap().runs()[0].hash.clone();
    let base = hash(MINIMAL);
    assert_eq!(
        base,
        hash(&format!(
            "name = \"other\"\nseeds = 2\npolicies = [\"WSDM\", \"RR\"]\n{MINIMAL}"
        ))
    );
    assert_eq!(base, hash(&MINIMAL.replace("40mbit", "40000kbit")));
    assert_ne!(base, hash(&MINIMAL.replace("40mbit", "41mbit")));
    assert_ne!(base, hash(&format!("seeds = [2]\n{MINIMAL}")));
    assert_ne!(base, hash(&format!("policies = [\"RR\"]\n{MINIMAL}")));
    assert_ne!(base, hash(&format!("{MINIMAL}\ntcp.control = \"reno\"")));
    assert_ne!(base, hash(&format!("length = \"31s\"\n{MINIMAL}")));
}

#[test]
fn a_sweep_of_what_is_not_there_is_refused() {
    let sweep = |text: &str| error(&format!("{}[sweep]\n{text}\n", MINIMAL.trim_start()));
    assert_eq!(
        sweep("link.fiber.loss = [\"1%\"]"),
        "house.toml:4: sweep.link.fiber.loss = [\"1%\"]: no such key in the file; write it with one of the values, whose place the sweep takes"
    );
    assert!(
        sweep("link.fiber.down = \"1mbit\"")
            .ends_with("a list of values is wanted: [\"10mbit\", \"40mbit\"]")
    );
    assert!(sweep("link.fiber.down = []").ends_with("one value is wanted at least"));
    assert!(sweep("link.fiber.down = [1, 1]").ends_with("1 is there twice"));
    assert!(
        sweep("link.fiber.down = [1]\n\"link.fiber\" = [{ rate = 1 }]")
            .ends_with("are one place of the file")
    );
    assert_eq!(
        sweep("link.fiber.down = [\"1mbit\", \"0mbit\"]"),
        "house.toml:1: link.fiber.down = \"0mbit\": a rate must be above 0: write it like \"500mbit\" (bit, kbit, mbit, gbit) or as a whole number of bit/s \
         (at the point link.fiber.down = 0mbit of the sweep)"
    );
}

#[test]
fn points_of_a_sweep_are_different_runs() {
    let same = "link.a.rate = \"1mbit\"\nname = \"x\"\nseeds = [1, 2]\n[sweep]\n";
    for (sweep, one, other) in [
        (
            "link.a.rate = [\"1mbit\", \"2mbit\", \"1000kbit\"]",
            "link.a.rate = 1mbit",
            "link.a.rate = 1000kbit",
        ),
        ("name = [\"a\", \"b\"]", "name = a", "name = b"),
        (
            "seeds = [[1, 2], [2, 3]]",
            "seeds = [1, 2]",
            "seeds = [2, 3]",
        ),
    ] {
        let expected = format!(
            "house.toml: sweep: {one} and {other} have the same runs; what differs between points has to decide a result"
        );
        assert_eq!(error(&format!("{same}{sweep}")), expected);
    }
    assert_eq!(
        parse(&format!("{same}seeds = [[1, 2], [3, 4]]"))
            .unwrap()
            .runs()
            .len(),
        4
    );
}

#[test]
fn a_sweep_of_more_points_than_can_be_counted_is_refused() {
    let mut text = String::new();
    let mut sweep = "[sweep]\n".to_owned();
    for link in 0..16 {
        text += &format!(
            "link.l{link} = {{ down = \"1mbit\", up = \"1mbit\", delay = \"1ms\", loss = \"0%\" }}\n"
        );
        sweep += &format!(
            "link.l{link} = {{ down = [1, 2], up = [1, 2], delay = [1, 2], loss = [1, 2] }}\n"
        );
    }
    // 2 to the 64th: no number of 64 bits.
    assert!(
        error(&(text + &sweep))
            .ends_with("more than 100000 points, which is the most that is allowed")
    );
}

#[test]
fn a_long_file_has_few_points() {
    let values: Vec<String> = (1..=1000).map(|value| value.to_string()).collect();
    let long = "#".repeat(300_000);
    let text = format!(
        "link.a.rate = 1\n[sweep]\nlink.a.rate = [{}]\n{long}",
        values.join(", ")
    );
    assert!(error(&text).ends_with("at most 268435456 bytes together are allowed"));
}

#[test]
fn a_swept_key_that_is_not_there_is_told_what_is_near() {
    let message = error("link.fiber.rate = \"1mbit\"\n[sweep]\nlink.fiber.rte = [\"1mbit\"]");
    assert!(
        message.ends_with("whose place the sweep takes; did you mean rate?"),
        "{message}"
    );
}
