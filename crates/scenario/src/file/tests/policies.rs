use super::*;

#[test]
fn policies_and_seeds_can_be_others_than_the_files() {
    let file = parse(MINIMAL).unwrap();
    let other = file
        .clone()
        .with_policies(&["rr".to_owned(), "LCF".to_owned()])
        .unwrap();
    let other = other.with_seeds(&[7, 5, 7]).unwrap();
    let tried: Vec<_> = other
        .runs()
        .iter()
        .map(|run| (run.policy.to_string(), run.seed))
        .collect();
    let wanted = [("RR", 5), ("RR", 7), ("LCF", 5), ("LCF", 7)];
    assert_eq!(
        tried,
        wanted.map(|(policy, seed)| (policy.to_owned(), seed))
    );
    let refused = file
        .with_policies(&["DHFV".to_owned()])
        .unwrap_err()
        .to_string();
    assert!(
        refused.starts_with("--policy: DHFV chooses among sublinks and this network has links"),
        "{refused}"
    );
}

#[test]
fn a_tuple_is_a_policy_wherever_a_name_is_and_shown_as_it_was_typed() {
    let names = |file: ScenarioFile| -> Vec<_> {
        file.runs().into_iter().map(|run| run.policy_name).collect()
    };
    let spellings = [
        r#"{ measure = "active", dispatch = "weighted" }"#,
        r#"{dispatch="weighted",measure='st-in',period="0.5 s"}"#,
        r#"  {  measure = "active" , granularity="session", dispatch = "weighted", syn_retry=true}  "#,
        r#"{ name = "mine", measure = "carried", dispatch = "best", period = "200ms" }"#,
    ];
    let shown = |text: &str| match text.contains("mine") {
        true => "mine".to_owned(),
        false => text.trim().to_owned(),
    };
    let shown = spellings.map(shown);
    let typed = parse(MINIMAL).unwrap();
    let typed = typed.with_policies(&spellings.map(str::to_owned)).unwrap();
    let written = parse(&format!("policies = [{}]\n{MINIMAL}", spellings.join(",")));
    let written = written.unwrap();
    for (one, other) in typed.runs().iter().zip(written.runs()) {
        assert_eq!((&one.hash, one.policy), (&other.hash, other.policy));
    }
    assert_eq!(names(typed), shown);
    assert_eq!(names(written), shown);
    let table = parse(&format!(
        "{MINIMAL}\n[[policies]]\nmeasure = \"active\"\ndispatch = \"weighted\""
    ));
    assert_eq!(names(table.unwrap()), [spellings[0]]);
}

#[test]
fn what_is_wrong_with_a_tuple_on_the_command_line_is_said_in_one_line() {
    for (text, says) in [
        (
            r#"{ measure = "active", dispatch = "weighted", period_ms = 100 }"#,
            "--policy: policy.period_ms = 100: unknown key; write period = \"100ms\"",
        ),
        (
            r#"{ measure = "actve", dispatch = "weighted" }"#,
            "--policy: policy.measure = \"actve\": allowed: none, dispatched, active, carried, carried-way, st-out, st-in, st-mix",
        ),
        (
            r#"{ name = "wsdm", dispatch = "hash" }"#,
            "name is that of a policy of the catalogue, WSDM: choose another",
        ),
        (r#"{ dispatch = "hash" } more"#, "--policy:1: not TOML"),
        ("{ dispatch = hash }", "--policy:1: not TOML"),
        (
            "{ dispatch = \"hash\" }\nx = 1",
            "unknown key; allowed: policy",
        ),
    ] {
        let file = parse(MINIMAL).unwrap();
        let refused = file.with_policies(&[text.to_owned()]).unwrap_err();
        let refused = refused.to_string();
        assert!(refused.contains(says), "{refused}");
        assert_eq!(refused.lines().count(), 1, "{refused}");
    }
}

#[test]
fn results_tell_policies_apart_by_name_and_runs_by_what_they_are() {
    let mine =
        |measure| format!("{{ name = \"mine\", measure = {measure:?}, dispatch = \"weighted\" }}");
    let twice = error_with(&format!(
        "policies = [{}, {}]",
        mine("active"),
        mine("dispatched")
    ));
    assert!(twice.ends_with("mine is there already"), "{twice}");
    let same = error_with(&format!("policies = [\"LCF\", {}]", mine("active")));
    assert!(same.ends_with("is LCF, which is there already"), "{same}");
}

#[test]
fn a_policy_that_cannot_work_there_is_refused_with_the_reason() {
    assert_eq!(
        error_with("policies = [\"RR\", \"DRR\"]"),
        "policies[1] = \"DRR\": sends the packets of one connection over several links, which have different addresses behind NAT; \
         choose per connection, or write nat = false for a site whose addresses are reachable over every link"
    );
    assert!(parse(&format!("nat = false\npolicies = [\"packet\"]\n{MINIMAL}")).is_ok());
    assert!(error_with("policies = [\"DHFV\"]").starts_with("policies[0] = \"DHFV\": DHFV chooses among sublinks and this network has links; allowed: WSDM, RR, "));
    assert!(
        error_with("policies = [\"fastest\"]")
            .starts_with("policies[0] = \"fastest\": unknown policy fastest; allowed: WSDM, RR, ")
    );
    assert_eq!(
        error_with("policies = [\"RR\", \"rr\"]"),
        "policies[1] = \"rr\": RR is there already"
    );
    assert_eq!(
        error_with("policies = []"),
        "policies = []: name one policy at least"
    );
    assert!(
        error_with("policies = [{ dispatch = \"best\" }]")
            .contains("dispatch best needs a measure that ranks links")
    );
    let gateway = error(&format!("{TRUNK}policies = [\"WSDM\"]"));
    assert_eq!(
        gateway,
        "house.toml:2: policies[0] = \"WSDM\": WSDM chooses among links and this network has sublinks; allowed: SH, DH, DHFV, DRR, flowlet, \"flowlet 50ms\", rendezvous, bonding, MLPPP, single"
    );
    let whole = error(&format!(
        "{TRUNK}policies = [\"SH\", \"single\"]\nfault = [{{ at = \"1s\", link = \"0\", change = \"cut\" }}]"
    ));
    assert_eq!(
        whole,
        "house.toml:2: policies[1] = \"single\": is the undivided link, which has no sublinks for faults to happen to; leave it or the faults out"
    );
    let undeclared = error("policies = [\"MORBF\"]\nlink.a = { rate = 1000, declared = false }");
    assert_eq!(
        undeclared,
        "house.toml:1: policies[0] = \"MORBF\": MORBF needs up of every link, and link.a is not declared to the gateway; leave out declared = false"
            .replace("up of", "`up` of")
    );
}

#[test]
fn a_choice_for_each_packet_is_refused_where_links_have_nat() {
    let links = "link.a = { rate = 1000, nat = false }\nlink.b = { rate = 1000 }\n";
    let per_packet = r#"{ dispatch = "turns", granularity = "packet" }"#;
    let problem = "chooses for each packet, and the packets of a connection must have one source: of its links, b translate; \
                   name others in its links, give these nat = false, or choose another granularity";
    let of_default = error(&format!("policies = [\"RR\", {per_packet}]\n{links}"));
    assert_eq!(
        of_default,
        format!("house.toml:1: policies[1] = {per_packet}: class default {problem}")
    );
    let on_command_line = parse(links)
        .unwrap()
        .with_policies(&[per_packet.to_owned()]);
    assert_eq!(
        on_command_line.unwrap_err().to_string(),
        format!("house.toml: --policy: class default {problem}")
    );
    let rule = "[[rule]]\nname = \"bulk\"\ngranularity = \"packet\"\n";
    let of_rule = error(&format!("policies = [\"RR\"]\n{links}{rule}"));
    assert!(
        of_rule.contains("rule[0].granularity = \"packet\": class bulk"),
        "{of_rule}"
    );
    assert!(
        parse(&format!(
            "policies = [\"RR\"]\n{links}{rule}links = [\"a\"]"
        ))
        .is_ok()
    );
    assert!(parse(&format!("nat = false\npolicies = [{per_packet}]\n{links}")).is_ok());
}
