//! Browser: the page as people get it, in headless Chromium: it opens without a word on the console, every plot has ink
//! where it says it is, and no two labels lie on each other.
//!
//! Where there is no Chromium these tests fail; they are not part of a plain `cargo test`, and `.ci/run` runs them.

use std::{fs, path::Path, process::Stdio, time::Duration};

use serde::Deserialize;
use tokio::{process::Command, time::timeout};

use super::{render, sample};

/// How long one start of the browser may take.
const PATIENCE: Duration = Duration::from_secs(90);
/// A laptop.
const WIDTH: u32 = 1_280;
/// Half a screen: what is too wide scrolls by itself, and not the page.
const NARROW: u32 = 700;

/// What the page says of itself when it is asked by a script.
#[derive(Debug, Deserialize)]
struct Measured {
    width: u32,
    height: u32,
    plots: Vec<Plot>,
}

/// One plot: where it is, and which of its labels are in each other's way or beyond its edge.
#[derive(Debug, Deserialize)]
struct Plot {
    title: String,
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
    faults: Vec<String>,
}

/// Put into a copy of the page, without the rule that forbids scripts. The answer replaces the page.
const ASK: &str = r#"<script>
const box = one => one.getBoundingClientRect();
const within = (inner, outer) => inner.left >= outer.left - 1 && inner.right <= outer.right + 1 && inner.top >= outer.top - 1 && inner.bottom <= outer.bottom + 1;
const apart = (a, b) => a.right <= b.left + 1 || b.right <= a.left + 1 || a.bottom <= b.top + 3 || b.bottom <= a.top + 3;
const plots = [...document.querySelectorAll("svg")].map(svg => {
  const labels = [...svg.querySelectorAll("text")].map(text => [text.textContent.trim(), box(text)]);
  const faults = labels.filter(([, at]) => !within(at, box(svg))).map(([words]) => `beyond the edge: ${words}`);
  labels.forEach(([words, at], n) => labels.slice(n + 1).forEach(([others, there]) => {
    if (!apart(at, there)) faults.push(`on each other: ${words} | ${others}`);
  }));
  const { left, top, right, bottom } = box(svg);
  return { title: svg.querySelector("title").textContent, left, top, right, bottom, faults };
});
const { scrollWidth: width, scrollHeight: height } = document.documentElement;
document.body.textContent = "MEASURED" + JSON.stringify({ width, height, plots }) + "MEASURED";
</script>"#;

/// Runs Chromium on a page; returns what it wrote to stdout, and what the page wrote to the console.
async fn chromium(
    directory: &Path,
    page: &str,
    (width, height): (u32, u32),
    arguments: &[&str],
) -> (String, Vec<String>) {
    let file = directory.join("page.html");
    fs::write(&file, page).expect("the page is written");
    let mut command = Command::new("chromium");
    command
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"])
        .args(["--no-first-run", "--disable-extensions", "--disable-sync", "--disable-component-update"])
        .args([
            "--disable-background-networking",
            "--force-color-profile=srgb",
            "--enable-logging=stderr",
            "--v=0",
        ])
        .arg(format!("--user-data-dir={}", directory.join("profile").display()))
        .arg(format!("--window-size={width},{height}"))
        .args(arguments)
        .arg(format!("file://{}", file.display()))
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = timeout(PATIENCE, command.output()).await.expect("chromium ends in time");
    let output = output.expect("chromium starts: install the package `chromium`, as .ci/run does");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "chromium ended {}:\n{errors}", output.status);
    let console = errors.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect();
    (String::from_utf8_lossy(&output.stdout).into_owned(), console)
}

async fn measure(directory: &Path, page: &str, width: u32) -> Measured {
    let policy = page.find("<meta http-equiv").expect("a page that forbids scripts");
    let end = policy + page[policy..].find('>').expect("the end of the tag") + 1;
    let asked = format!("{}{}{ASK}", &page[..policy], &page[end..]);
    let (dom, console) = chromium(directory, &asked, (width, 900), &["--dump-dom"]).await;
    assert!(console.is_empty(), "{console:#?}");
    let answer = dom.split("MEASURED").nth(1).expect("the script has run");
    let answer =
        answer.replace("&lt;", "<").replace("&gt;", ">").replace("&nbsp;", " ").replace("&amp;", "&");
    serde_json::from_str(&answer).expect("what the script wrote")
}

/// A picture in rows of red, green and blue.
struct Picture {
    width: usize,
    rgb: Vec<[u8; 3]>,
}

impl Picture {
    fn read(path: &Path) -> Self {
        let file = std::io::BufReader::new(fs::File::open(path).expect("a screenshot"));
        let mut reader = png::Decoder::new(file).read_info().expect("a PNG");
        let mut bytes = vec![0; reader.output_buffer_size().expect("it fits")];
        let frame = reader.next_frame(&mut bytes).expect("whole");
        assert_eq!(frame.bit_depth, png::BitDepth::Eight);
        let samples = frame.color_type.samples();
        let rgb =
            bytes[..frame.buffer_size()].chunks_exact(samples).map(|pixel| [pixel[0], pixel[1], pixel[2]]);
        Self { width: frame.width as usize, rgb: rgb.collect() }
    }

    /// The share of an area that does not have its most frequent colour.
    fn inked(&self, plot: &Plot) -> f64 {
        let columns = plot.left.max(0.0) as usize..(plot.right as usize).min(self.width);
        let rows = plot.top.max(0.0) as usize..plot.bottom as usize;
        let pixels = rows.flat_map(|row| self.rgb[row * self.width..][columns.clone()].iter());
        let mut colours = std::collections::HashMap::<[u8; 3], usize>::new();
        let mut all = 0;
        for pixel in pixels {
            *colours.entry(*pixel).or_default() += 1;
            all += 1;
        }
        1.0 - colours.into_values().max().unwrap_or(0) as f64 / f64::from(all.max(1))
    }

    fn has(&self, wanted: [u8; 3]) -> bool {
        self.rgb.contains(&wanted)
    }
}

/// Opens a page, keeps its picture beside the test binaries, and checks everything that holds for every page.
async fn look(name: &str, page: &str) -> (Measured, Picture) {
    let directory = tempfile::tempdir().expect("a directory");
    let measured = measure(directory.path(), page, WIDTH).await;
    assert!(measured.width <= WIDTH, "{name}: {} pixels wide", measured.width);
    let faults: Vec<_> = measured
        .plots
        .iter()
        .filter(|plot| !plot.faults.is_empty())
        .map(|plot| (&plot.title, &plot.faults))
        .collect();
    assert!(faults.is_empty(), "{name}: {faults:#?}");

    let pictures = std::env::current_exe().expect("this test").with_file_name("report-pictures");
    fs::create_dir_all(&pictures).expect("a directory for pictures");
    let shot = pictures.join(format!("{name}.png"));
    let argument = format!("--screenshot={}", shot.display());
    let (_, console) = chromium(directory.path(), page, (WIDTH, measured.height), &[&argument]).await;
    assert!(console.is_empty(), "{name}: {console:#?}");
    println!("{name}: {}", shot.display());
    let picture = Picture::read(&shot);
    for plot in &measured.plots {
        let inked = picture.inked(plot);
        assert!(inked > 0.01, "{name}: {} is blank ({inked})", plot.title);
    }
    (measured, picture)
}

#[tokio::test]
#[ignore = "needs Chromium; .ci/run installs it and runs this"]
async fn a_full_report_opens_without_errors_and_shows_every_plot() {
    let (measured, picture) = look("full", &render(&sample::full(), &sample::run())).await;
    assert_eq!(measured.plots.len(), 13, "{:#?}", measured.plots);
    let narrow = tempfile::tempdir().expect("a directory");
    let measured = measure(narrow.path(), &render(&sample::full(), &sample::run()), NARROW).await;
    assert!(measured.width <= NARROW, "{} pixels wide", measured.width);
    for policy in 0..2 {
        let plotters::style::RGBColor(r, g, b) = super::ink::policy(policy, 2).rgb();
        assert!(picture.has([r, g, b]), "policy {policy} has no ink");
    }
}

#[tokio::test]
#[ignore = "needs Chromium; .ci/run installs it and runs this"]
async fn a_sparse_report_and_one_of_another_shape_open_without_errors() {
    look("sparse", &render(&sample::sparse(), &sample::run())).await;
    look("empty", &render(&crate::report::Report::default(), &sample::run())).await;
    look("rollout", &render(&sample::rollout(), &sample::run())).await;
}

#[tokio::test]
#[ignore = "needs Chromium; .ci/run installs it and runs this"]
async fn what_is_looked_for_would_be_found() {
    let directory = tempfile::tempdir().expect("a directory");
    let noisy = "<!DOCTYPE html><title>t</title><script>nowhere()</script><body>x";
    let (_, console) = chromium(directory.path(), noisy, (WIDTH, 600), &["--dump-dom"]).await;
    assert!(!console.is_empty(), "an error on the console is not seen");

    let forbids = "<meta http-equiv=\"x\" content=\"\">";
    let label = |x: u32, words: &str| format!("<text x=\"{x}\" y=\"40\">{words}</text>");
    let page = format!(
        "<!DOCTYPE html><html><head>{forbids}<title>t</title></head><body><svg width=\"400\" height=\"80\"><title>bad</title>{}{}{}</svg><svg width=\"400\" height=\"80\"><title>blank</title></svg></body></html>",
        label(10, "first"),
        label(20, "second"),
        label(390, "beyond"),
    );
    let measured = measure(directory.path(), &page, WIDTH).await;
    assert_eq!(measured.plots[0].faults.len(), 2, "{measured:#?}");
    let shot = directory.path().join("blank.png");
    chromium(directory.path(), &page, (WIDTH, 600), &[&format!("--screenshot={}", shot.display())]).await;
    assert!(Picture::read(&shot).inked(&measured.plots[1]) < 0.01, "a blank plot passes");
}
