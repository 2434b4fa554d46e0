use super::*;

#[test]
fn cubic_has_hystart_unless_told_otherwise_and_reno_has_none() {
    let hystart = |tcp: &str| read(&format!("{MINIMAL}\n{tcp}")).tcp.hystart;
    assert!(hystart("") && hystart("tcp.control = \"cubic\""));
    assert!(!hystart("tcp.hystart = false") && !hystart("tcp.control = \"reno\""));
}

#[test]
fn sizes_of_segments_have_units_or_are_bytes() {
    for written in [
        "tcp = { mss = \"1.46kB\", header = \"40B\" }",
        "tcp = { mss = 1460, header = 40 }",
    ] {
        let tcp = read(&format!("{MINIMAL}\n{written}")).tcp;
        assert_eq!((tcp.mss_bytes, tcp.header_bytes), (1460, 40), "{written}");
    }
}
