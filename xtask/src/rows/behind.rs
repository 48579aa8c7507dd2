//! The rows behind their goals, as a second table of BENCHMARKS.md: each with the figures of the first table, and a reason
//! written by hand.
//!
//! The table is made anew with each writing of rows. A row that misses its goal for the first time has an empty reason, and
//! the tests of xtask fail until somebody writes the reason down.

use super::{Row, cells, of_page, put_between};

/// Stands before the table in BENCHMARKS.md.
pub const BEGIN: &str = "<!-- behind: begin -->";
/// Stands behind the table.
pub const END: &str = "<!-- behind: end -->";

const HEAD: &str = "| bench | row | adapter | median | goal | why |\n\
                    | --- | --- | --- | --- | --- | --- |\n";

/// A line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behind {
    pub row: Row,
    pub why: String,
}

/// The page with the table of the rows that miss their goals in the page's table of all rows; `None` where markers are missing.
pub fn renew(page: &str) -> Option<String> {
    let lines: String = behind(page)?.iter().map(Behind::line).collect();
    put_between(page, BEGIN, END, &format!("{HEAD}{lines}"))
}

/// The rows of the page that miss their goals, each with the page's reason or none.
pub fn behind(page: &str) -> Option<Vec<Behind>> {
    let rows = of_page(page)?;
    let (_, rest) = page.split_once(BEGIN)?;
    let (table, _) = rest.split_once(END)?;
    let reasons: Vec<Vec<String>> = table.lines().filter_map(cells).collect();
    let why = |row: &Row| {
        let is_of = |line: &&Vec<String>| {
            line.len() == 6 && line[0] == row.bench && line[1] == row.name && line[2] == row.adapter
        };
        let line = reasons.iter().find(is_of);
        line.map_or_else(String::new, |line| line[5].clone())
    };
    let missed = rows
        .into_iter()
        .filter(|row| row.reaches_goal() == Some(false));
    Some(
        missed
            .map(|row| Behind {
                why: why(&row),
                row,
            })
            .collect(),
    )
}

impl Behind {
    fn line(&self) -> String {
        let Row {
            bench,
            name,
            adapter,
            median,
            goal,
            ..
        } = &self.row;
        let why = &self.why;
        format!("| {bench} | {name} | {adapter} | {median} | {goal} | {why} |\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows;
    use crate::workspace::Workspace;

    fn page(lines: &[&str], reasons: &str) -> String {
        let rows: Vec<Row> = lines
            .iter()
            .map(|line| Row::parse("launch", "2026-01-02", line).unwrap())
            .collect();
        let (begin, end) = (rows::BEGIN, rows::END);
        let page = format!("{begin}\n{end}\nbehind:\n{BEGIN}\n{HEAD}{reasons}{END}\n");
        rows::merge(&page, &rows).unwrap()
    }

    #[test]
    fn rows_behind_have_the_figures_of_today_and_keep_their_reasons() {
        let page = page(
            &[
                "ratio a/llvmpipe = 1.5 (1..2) goal <= 1",
                "ratio a/NVIDIA = 1.0 (1..2) goal <= 1",
                "rate b = 4.0 (3..5) goal >= 5",
            ],
            "| launch | a | llvmpipe | 1.2 | <= 1 | a reason |\n\
             | launch | a | NVIDIA | 1.2 | <= 1 | no longer behind |\n",
        );
        let page = renew(&page).unwrap();
        let (_, table) = page.split_once(BEGIN).unwrap();
        let expected = format!(
            "\n{HEAD}| launch | a | llvmpipe | 1.5 | <= 1 | a reason |\n\
             | launch | rate b | host | 4.0 | >= 5 |  |\n{END}\n"
        );
        assert_eq!(table, expected);
        assert_eq!(renew("no table"), None);
    }

    #[test]
    fn the_page_has_a_reason_for_each_row_behind_and_the_figures_of_the_rows() {
        let page = std::fs::read_to_string(Workspace::find().unwrap().benchmarks()).unwrap();
        for Behind { row, why } in behind(&page).unwrap() {
            assert!(
                !why.is_empty(),
                "{} {} on {} misses its goal without a reason on the page",
                row.bench,
                row.name,
                row.adapter
            );
        }
        // The same page: no row is behind that the page does not name, and none is named with another figure.
        assert!(
            renew(&page).as_deref() == Some(page.as_str()),
            "the rows behind have other figures in BENCHMARKS.md than the rows: `cargo xtask bench --renew`"
        );
    }
}
