use super::*;

#[test]
fn cubic_has_hystart_unless_told_otherwise_and_reno_has_none() {
    let hystart = |tcp: &str| read(&format!("{MINIMAL}\n{tcp}")).tcp.hystart;
    assert!(hystart("") && hystart("tcp.control = \"cubic\""));
    assert!(!hystart("tcp.hystart = false") && !hystart("tcp.control = \"reno\""));
}
