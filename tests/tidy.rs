//! Tidy: the house rules that no compiler checks, as plain tests. Each reads the checkout as it is on disk and lists
//! every fault that it finds. Each checker is also run on a small bad input, so that it is known to be able to fail.

#[path = "tidy/arrows.rs"]
mod arrows;
#[path = "tidy/cli.rs"]
mod cli;
#[path = "tidy/commands.rs"]
mod commands;
#[path = "tidy/docs.rs"]
mod docs;
#[path = "tidy/images.rs"]
mod images;
#[path = "tidy/operations.rs"]
mod operations;
#[path = "tidy/proto.rs"]
mod proto;
#[path = "tidy/repo.rs"]
mod repo;
#[path = "tidy/supply.rs"]
mod supply;
#[path = "tidy/text.rs"]
mod text;

use repo::Repo;

/// Fails with every fault, one a line.
fn assert_clean(faults: &[String]) {
    assert!(faults.is_empty(), "{} fault(s):\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn every_rust_file_says_what_it_is_for() {
    assert_clean(&text::headers(&Repo::read()));
}

#[test]
fn no_file_is_too_long_to_hold_in_the_head() {
    assert_clean(&text::sizes(&Repo::read()));
}

#[test]
fn no_file_names_a_machine_or_a_registry() {
    assert_clean(&text::places(&Repo::read()));
}

#[test]
fn dependency_arrows_are_those_of_the_map() {
    let repo = Repo::read();
    assert_clean(&arrows::imports(&repo));
    assert_clean(&arrows::documented(&repo));
}

#[test]
fn pure_rooms_stay_pure() {
    assert_clean(&arrows::absences(&Repo::read()));
}

#[test]
fn protobuf_packages_match_their_directories() {
    assert_clean(&proto::packages(&Repo::read()));
}

#[test]
fn documented_commands_can_be_run() {
    assert_clean(&docs::commands(&Repo::read()));
}

#[test]
fn documented_paths_exist() {
    assert_clean(&docs::paths(&Repo::read()));
}

#[test]
fn no_document_has_a_gap() {
    assert_clean(&docs::gaps(&Repo::read()));
}

#[test]
fn both_images_are_the_same_and_compose_runs_every_service() {
    assert_clean(&images::faults(&Repo::read()));
}

#[test]
fn the_page_of_bounds_is_the_one_that_the_policy_makes() {
    assert_clean(&operations::bounds(&Repo::read()));
}

#[test]
fn every_task_has_an_owner() {
    assert_clean(&operations::tasks(&Repo::read()));
}

#[test]
fn a_container_may_take_longer_to_stop_than_its_process() {
    assert_clean(&operations::grace(&Repo::read()));
}

#[test]
fn every_package_has_an_allowed_source_and_licence() {
    let repo = Repo::read();
    assert_clean(&supply::sources(&repo));
    assert_clean(&supply::licences(&repo, &supply::metadata(&repo)));
}

#[test]
fn every_ban_gives_a_reason_and_a_replacement() {
    assert_clean(&supply::bans(&Repo::read()));
}
