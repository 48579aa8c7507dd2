//! Every link of a page leads somewhere: to a file or a folder, and to a heading where the link names a heading.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::{pages, prose};
use crate::workspace::Workspace;

/// The targets of a page's links and pictures in the repository, in order.
pub fn targets(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(page) {
        // Text in code spans holds no link.
        let text: String = line.split('`').step_by(2).collect();
        for rest in text.split("](").skip(1) {
            let target = rest.split_once(')').map_or(rest, |(target, _)| target);
            let is_elsewhere = target.contains("://") || target.starts_with("mailto:");
            if !is_elsewhere {
                found.push(target.to_owned());
            }
        }
    }
    found
}

/// The anchors of a page's headings, as made by GitHub and mdBook: lower case, spaces as hyphens, other signs left out, and a
/// number behind an anchor that the page has already.
pub fn anchors(page: &str) -> Vec<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let headings = prose(page).filter(|line| line.starts_with('#'));
    let titles = headings.map(|line| line.trim_start_matches('#').trim());
    titles
        .map(|title| {
            let kept = title
                .chars()
                .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
            let name: String = kept.collect::<String>().to_lowercase().replace(' ', "-");
            let count = seen.entry(name.clone()).or_default();
            *count += 1;
            match *count {
                1 => name,
                more => format!("{name}-{}", more - 1),
            }
        })
        .collect()
}

/// Why a link of `page` leads nowhere.
fn broken(page: &Path, target: &str) -> Option<String> {
    let (path, anchor) = match target.split_once('#') {
        Some((path, anchor)) => (path, Some(anchor)),
        None => (target, None),
    };
    let file = if path.is_empty() {
        page.to_path_buf()
    } else {
        page.parent()?.join(path)
    };
    if !file.exists() {
        return Some("no such file".to_owned());
    }
    let anchor = anchor?;
    let known = fs::read_to_string(&file).map_or_else(|_| Vec::new(), |text| anchors(&text));
    let is_known = known.iter().any(|known| known == anchor);
    (!is_known).then(|| format!("no such heading; there are: {}", known.join(", ")))
}

#[test]
fn every_link_leads_somewhere() {
    let root = Workspace::find().unwrap().root().to_path_buf();
    let mut wrong = Vec::new();
    let mut count = 0;
    for page in pages(&root) {
        let text = fs::read_to_string(&page).unwrap();
        for target in targets(&text) {
            count += 1;
            if let Some(why) = broken(&page, &target) {
                wrong.push(format!("{}: {target}: {why}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "broken links:\n{}", wrong.join("\n"));
    assert!(count > 100, "only {count} links are found");
}

#[test]
fn links_are_told_from_code_and_from_other_sites() {
    let page = "[a](b.md#c), `[x](y)` ![d](e.png)\n```\n[f](g)\n```\n[h](https://i) [j](#k)";
    assert_eq!(targets(page), ["b.md#c", "e.png", "#k"]);
}

#[test]
fn headings_become_anchors() {
    let page = "# From `a`, to B!\n```sh\n# no heading\n```\n## On a card\n## On a card";
    assert_eq!(anchors(page), ["from-a-to-b", "on-a-card", "on-a-card-1"]);
}

#[test]
fn a_link_that_is_broken_is_noticed() {
    let page: PathBuf = Workspace::find().unwrap().root().join("README.md");
    assert_eq!(broken(&page, "ARCHITECTURE.md#rooms"), None);
    assert_eq!(broken(&page, "docs/guide"), None);
    assert!(broken(&page, "ARCHITECTURE.md#no-such-room").is_some());
    assert!(broken(&page, "MISSING.md").is_some());
}
