//! Descriptors: a server takes as many as it may have, and says so when its bound of connections does not fit.

use std::{fs, process::Stdio};

use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
};

use crate::member::soon;

/// Starts an emulator with these limits of open files, waits until it is ready, and gives what it said and its soft limit.
async fn started(soft: u32, hard: u32) -> (String, u64) {
    let serve = "serve emulator --listen 127.0.0.1:0 --admin 127.0.0.1:0 --control 127.0.0.1:0";
    let script = format!("ulimit -Sn {soft} && ulimit -Hn {hard} && exec \"$0\" {serve}");
    let mut child = Command::new("/bin/bash")
        .args(["-c", &script, env!("CARGO_BIN_EXE_mercury")])
        .env_remove("MERCURY_LOG")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("a shell");
    let mut said = String::new();
    let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    loop {
        let line = soon(lines.next_line()).await.expect("it reads").expect("it became ready");
        said.push_str(&line);
        said.push('\n');
        if line.contains("ready") {
            break;
        }
    }
    let limits =
        fs::read_to_string(format!("/proc/{}/limits", child.id().expect("it runs"))).expect("limits");
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")).expect("a line");
    let soft = files.split_ascii_whitespace().next().and_then(|limit| limit.parse().ok()).expect("a number");
    child.kill().await.expect("it ends");
    (said, soft)
}

#[tokio::test]
async fn a_server_takes_the_descriptors_that_it_may_have_and_warns_of_too_few() {
    let (said, soft) = started(256, 2_048).await;
    assert_eq!(soft, 2_048);
    assert!(!said.contains("connections_max"), "{said}");
    let (said, soft) = started(256, 512).await;
    assert_eq!(soft, 512);
    assert!(said.contains("connections_max") && said.contains("512"), "{said}");
}
