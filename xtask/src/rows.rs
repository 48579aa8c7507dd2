//! Rows of the benches: the last lines of a bench, and the table of BENCHMARKS.md with the rows.
//!
//! A line is `<kind> <row>[/<adapter>] = <median> (<least>..<most>)[ goal <= <limit>]`, where the kind is `ratio`, `time`,
//! `rate` or `count`. A row of the table is replaced by a new line of the same bench, row and adapter, and stays unchanged
//! otherwise: figures of adapters missing on the machine are not lost.

pub mod behind;
pub mod machines;

/// Stands before the table in BENCHMARKS.md.
pub const BEGIN: &str = "<!-- rows: begin -->";
/// Stands behind the table.
pub const END: &str = "<!-- rows: end -->";

const HEAD: &str = "| bench | row | adapter | median | least..most | goal | measured |\n\
                    | --- | --- | --- | --- | --- | --- | --- |\n";
const KINDS: [&str; 4] = ["ratio", "time", "rate", "count"];

/// A row: the measurement, the place and the day. Cells are text: figures of earlier days may be ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub bench: String,
    /// The kind is left out where the kind is `ratio`.
    pub name: String,
    pub adapter: String,
    pub median: String,
    pub spread: String,
    pub goal: String,
    pub measured: String,
}

impl Row {
    /// The row in a line of a bench's output; `None` for any other line.
    pub fn parse(bench: &str, measured: &str, line: &str) -> Option<Self> {
        let (label, figures) = line.trim().split_once(" = ")?;
        let (kind, row) = label.split_once(' ')?;
        if !KINDS.contains(&kind) || row.contains(' ') {
            return None;
        }
        let (row, adapter) = row.split_once('/').unwrap_or((row, "host"));
        let (figures, goal) = figures.split_once(" goal ").unwrap_or((figures, ""));
        let (median, spread) = figures.split_once(" (")?;
        let spread = spread.strip_suffix(')')?;
        median.parse::<f64>().ok()?;
        Some(Self {
            bench: bench.to_owned(),
            name: match kind {
                "ratio" => row.to_owned(),
                _ => format!("{kind} {row}"),
            },
            adapter: adapter.to_owned(),
            median: median.to_owned(),
            spread: spread.to_owned(),
            goal: goal.to_owned(),
            measured: measured.to_owned(),
        })
    }

    /// Whether the goal, if there is one, was reached; `None` where the cells are no plain numbers.
    pub fn reaches_goal(&self) -> Option<bool> {
        let Some((sign, limit)) = self.goal.split_once(' ') else {
            return Some(true);
        };
        let (median, limit): (f64, f64) = (self.median.parse().ok()?, limit.parse().ok()?);
        match sign {
            "<=" => Some(median <= limit),
            ">=" => Some(median >= limit),
            _ => None,
        }
    }

    fn key(&self) -> (&str, &str, &str) {
        (&self.bench, &self.name, &self.adapter)
    }

    fn cells(&self) -> [&str; 7] {
        [
            &self.bench,
            &self.name,
            &self.adapter,
            &self.median,
            &self.spread,
            &self.goal,
            &self.measured,
        ]
    }

    fn from_table(line: &str) -> Option<Self> {
        let [bench, name, adapter, median, spread, goal, measured] =
            cells(line)?.try_into().ok()?;
        Some(Self {
            bench,
            name,
            adapter,
            median,
            spread,
            goal,
            measured,
        })
    }
}

/// The cells of a table's line; `None` for any other line.
fn cells(line: &str) -> Option<Vec<String>> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    Some(inner.split('|').map(|cell| cell.trim().into()).collect())
}

/// The rows in the table of the page; `None` where the page lacks the markers.
pub fn of_page(page: &str) -> Option<Vec<Row>> {
    let (_, rest) = page.split_once(BEGIN)?;
    let (table, _) = rest.split_once(END)?;
    // Without the head, and the line below the head.
    Some(table.lines().filter_map(Row::from_table).skip(2).collect())
}

/// The page with whole lines in place of all between two markers.
fn put_between(page: &str, begin: &str, end: &str, lines: &str) -> Option<String> {
    let (before, rest) = page.split_once(begin)?;
    let (_, after) = rest.split_once(end)?;
    Some(format!("{before}{begin}\n{lines}{end}{after}"))
}

/// The page with `new` in the table; `None` where the page lacks the markers.
pub fn merge(page: &str, new: &[Row]) -> Option<String> {
    let mut rows: Vec<Row> = (of_page(page)?.into_iter())
        .filter(|old| new.iter().all(|new| new.key() != old.key()))
        .chain(new.iter().cloned())
        .collect();
    rows.sort_by(|a, b| a.key().cmp(&b.key()));
    let lines: String = rows
        .iter()
        .map(|row| format!("| {} |\n", row.cells().join(" | ")))
        .collect();
    put_between(page, BEGIN, END, &format!("{HEAD}{lines}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(line: &str) -> Row {
        Row::parse("launch", "2026-01-02", line).unwrap()
    }

    #[test]
    fn lines_of_every_kind_are_rows() {
        let launch = row("ratio launch_wait/llvmpipe = 1.041 (0.990..1.102) goal <= 1.1");
        assert_eq!(
            launch.cells(),
            [
                "launch",
                "launch_wait",
                "llvmpipe",
                "1.041",
                "0.990..1.102",
                "<= 1.1",
                "2026-01-02"
            ]
        );
        let rate = row("rate calls_1_M/SwiftShader = 2.0 (1.9..2.1)");
        assert_eq!(
            (rate.name.as_str(), rate.goal.as_str()),
            ("rate calls_1_M", "")
        );
        // Rows of the host alone name no adapter; pairs of adapters stand behind the first slash.
        assert_eq!(
            row("time plan_us = 0.40 (0.30..0.50) goal <= 2.00").adapter,
            "host"
        );
        assert_eq!(
            row("ratio whole/llvmpipe+llvmpipe_copies = 0.9 (0.8..1.0)").adapter,
            "llvmpipe+llvmpipe_copies"
        );
    }

    #[test]
    fn other_lines_are_none() {
        for line in [
            "",
            "llvmpipe (LLVM 15.0.6, 256 bits)",
            "ratio launch_wait/llvmpipe = fast (1..2)",
            "ratio launch_wait/llvmpipe = 1.0",
            "ratios of two = 1.0 (0.9..1.1)",
            "speed launch/llvmpipe = 1.0 (0.9..1.1)",
        ] {
            assert_eq!(Row::parse("launch", "", line), None, "{line}");
        }
    }

    #[test]
    fn goals_have_a_direction() {
        assert_eq!(
            row("ratio a = 1.1 (1..2) goal <= 1.1").reaches_goal(),
            Some(true)
        );
        assert_eq!(
            row("ratio a = 1.2 (1..2) goal <= 1.1").reaches_goal(),
            Some(false)
        );
        assert_eq!(
            row("rate a = 1.2 (1..2) goal >= 5").reaches_goal(),
            Some(false)
        );
        assert_eq!(row("rate a = 1.2 (1..2)").reaches_goal(), Some(true));
    }

    #[test]
    fn a_new_row_takes_the_place_of_the_old_one_and_of_no_other() {
        let page = format!("text\n{BEGIN}\n{END}\nmore\n");
        let old = [
            row("ratio a/llvmpipe = 1.5 (1..2)"),
            row("ratio a/NVIDIA = 1.4 (1..2)"),
        ];
        let page = merge(&page, &old).unwrap();
        let page = merge(&page, &[row("ratio a/llvmpipe = 1.3 (1.2..1.4) goal <= 2")]).unwrap();
        let expected = format!(
            "text\n{BEGIN}\n{HEAD}\
             | launch | a | NVIDIA | 1.4 | 1..2 |  | 2026-01-02 |\n\
             | launch | a | llvmpipe | 1.3 | 1.2..1.4 | <= 2 | 2026-01-02 |\n\
             {END}\nmore\n"
        );
        assert_eq!(page, expected);
        assert_eq!(merge("no table", &[]), None);
    }
}
