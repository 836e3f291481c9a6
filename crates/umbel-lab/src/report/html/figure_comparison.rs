//! One figure of an outcome, compared with the base of its series and with published figures.

use crate::experiment::PublishedSeries;
use crate::results::outcome::{Better, FigureNote, Outcome, Point, Spread};

/// One figure at all of its places.
pub struct Comparison<'a> {
    /// The figure.
    pub figure: &'a FigureNote,
    /// Places at which it was measured.
    pub places: Vec<&'a str>,
    /// Measured values, one row for each series.
    pub lines: Vec<SeriesRow<'a>>,
    /// Published values.
    pub articles: Vec<ArticleSeries<'a>>,
}

/// One series of a figure.
pub struct SeriesRow<'a> {
    /// Name of the series in the outcome.
    pub series: &'a str,
    /// Displayed name; a series without a name has the name of the only engine.
    pub name: &'a str,
    /// Cells for each of the places.
    pub cells: Vec<Cell<'a>>,
}

/// One figure of one series at one place.
pub struct Cell<'a> {
    /// All repetitions of the figure at the place; `None` if it was not measured.
    pub point: Option<&'a Point>,
    /// Spread of the counted repetitions; `None` if none counts.
    pub spread: Option<Spread>,
    /// The spread as a ratio to the base.
    pub ratio: Option<Spread>,
    /// Verdict against the base.
    pub verdict: CellVerdict,
}

/// Verdict on a figure against its base: the first comparable place of its series or, with one
/// place only, the first series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellVerdict {
    /// The figure has no base.
    Alone,
    /// The figure is the base.
    Base,
    /// Figure and base are statistically equal.
    Equal,
    /// The figure is better than the base.
    Better,
    /// The figure is worse than the base.
    Worse,
    /// Figure and base differ, and neither direction is better.
    Different,
}

/// A series that an article published.
pub struct ArticleSeries<'a> {
    /// The published series.
    pub seed: &'a PublishedSeries,
    /// Index of the row with which the series is compared.
    pub beside: Option<usize>,
    /// Published value for each of the places.
    pub cells: Vec<PublishedValue>,
}

/// Published value at one place.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PublishedValue {
    /// The value, in the article's unit.
    pub value: Option<f64>,
    /// The value as a ratio to the article's own base.
    pub ratio: Option<f64>,
}

impl<'a> Comparison<'a> {
    /// Compares a figure; `None` if it was measured nowhere.
    pub fn of(
        outcome: &'a Outcome,
        figure: &'a FigureNote,
        seeds: &'a [PublishedSeries],
    ) -> Option<Comparison<'a>> {
        let here: Vec<&Point> =
            outcome.points.iter().filter(|point| point.figure == figure.name).collect();
        let mut places = outcome.places();
        places.retain(|place| here.iter().any(|point| point.x == *place));
        let mut series = outcome.series();
        series.retain(|series| here.iter().any(|point| point.series == *series));
        let cell = |series: &str, place: &str| {
            let is_it = |point: &&&Point| point.series == series && point.x == place;
            Cell::of(here.iter().find(is_it).copied())
        };
        let unnamed = match outcome.engines.as_slice() {
            [only] => only.name.as_str(),
            _ => "measured",
        };
        let line = |series: &&'a str| SeriesRow {
            series,
            name: if series.is_empty() { unnamed } else { series },
            cells: places.iter().map(|place| cell(series, place)).collect(),
        };
        let lines: Vec<SeriesRow<'a>> = series.iter().map(line).collect();
        let seeds = seeds.iter().filter(|seed| seed.figure == figure.name);
        let articles = seeds.map(|seed| ArticleSeries {
            seed,
            beside: lines.iter().position(|line| line.series == seed.beside),
            cells: places.iter().map(|place| PublishedValue::of(seed, place)).collect(),
        });
        let articles: Vec<ArticleSeries<'a>> = articles.collect();
        let mut comparison = Comparison { figure, places, lines, articles };
        match comparison.places.len() {
            0 => return None,
            1 => comparison.compare_series(),
            _ => comparison.compare_places(),
        }
        Some(comparison)
    }

    /// Whether the series are compared with each other, because there is only one place.
    pub fn compares_series(&self) -> bool {
        self.places.len() == 1
    }

    /// Whether there are published values that can be drawn beside ours.
    pub fn has_articles(&self) -> bool {
        let mut cells = self.articles.iter().flat_map(|article| &article.cells);
        cells.any(|cell| cell.ratio.is_some())
    }

    /// Returns the cell; `None` if the figure has no such series or place.
    pub fn cell(&self, series: &str, place: &str) -> Option<&Cell<'a>> {
        let line = self.lines.iter().find(|line| line.series == series)?;
        line.cells.get(self.places.iter().position(|known| *known == place)?)
    }

    /// Returns the published values for this series at this place.
    pub fn published(
        &self,
        series: &str,
        place: &str,
    ) -> Vec<(&'a PublishedSeries, PublishedValue)> {
        let Some(at) = self.places.iter().position(|known| *known == place) else {
            return Vec::new();
        };
        let beside = self.articles.iter().filter(|article| article.seed.beside == series);
        let cells = beside.map(|article| (article.seed, article.cells[at]));
        cells.filter(|(_, cell)| cell.value.is_some()).collect()
    }

    /// Returns the name of the base of ratios: the place, or the series if there is one place.
    /// `None` if there are no ratios, or each series has another base.
    pub fn base_name(&self) -> Option<&'a str> {
        let names = self.lines.iter().flat_map(|line| {
            let names = self.places.iter().map(|place| match self.compares_series() {
                true => line.name,
                false => *place,
            });
            let bases = line.cells.iter().map(|cell| cell.verdict == CellVerdict::Base);
            names.zip(bases).filter_map(|(name, is_base)| is_base.then_some(name))
        });
        let mut names = names.collect::<Vec<&str>>().into_iter();
        let first = names.next()?;
        names.all(|name| name == first).then_some(first)
    }

    fn compare_places(&mut self) {
        let better = self.figure.better;
        for (at, line) in self.lines.iter_mut().enumerate() {
            let mut beside: Vec<&mut ArticleSeries<'a>> =
                self.articles.iter_mut().filter(|article| article.beside == Some(at)).collect();
            let comparable = |place: &usize| line.cells[*place].can_be_base();
            let published =
                |place: &usize| beside.iter().all(|article| article.cells[*place].can_be_base());
            let all = 0..line.cells.len();
            let shared = all.clone().filter(comparable).find(published);
            let sound = |place: &usize| line.cells[*place].spread.is_some();
            let base = shared.or_else(|| all.clone().find(comparable));
            let Some(base) = base.or_else(|| all.clone().find(sound)) else { continue };
            let spread = line.cells[base].spread;
            for (place, cell) in line.cells.iter_mut().enumerate() {
                cell.compare_to(spread, place == base, better);
            }
            for article in &mut beside {
                article.compare_to(article.cells[base].value);
            }
        }
        for article in self.articles.iter_mut().filter(|article| article.beside.is_none()) {
            let first = article.cells.iter().find(|cell| cell.can_be_base());
            article.compare_to(first.and_then(|cell| cell.value));
        }
    }

    fn compare_series(&mut self) {
        let comparable = |at: &usize| self.lines[*at].cells[0].can_be_base();
        let published = |at: &usize| {
            let mut beside = self.articles.iter().filter(|article| article.beside == Some(*at));
            beside.find(|article| article.cells[0].can_be_base())
        };
        let all = 0..self.lines.len();
        if all.len() < 2 {
            return;
        }
        let shared = all.clone().filter(comparable).find(|at| published(at).is_some());
        let sound = |at: &usize| self.lines[*at].cells[0].spread.is_some();
        let base =
            shared.or_else(|| all.clone().find(comparable)).or_else(|| all.clone().find(sound));
        let Some(base) = base else { return };
        let published = published(&base).and_then(|article| article.cells[0].value);
        let spread = self.lines[base].cells[0].spread;
        for (at, line) in self.lines.iter_mut().enumerate() {
            line.cells[0].compare_to(spread, at == base, self.figure.better);
        }
        for article in &mut self.articles {
            article.compare_to(published);
        }
    }
}

impl<'a> Cell<'a> {
    fn of(point: Option<&'a Point>) -> Cell<'a> {
        Cell {
            point,
            spread: point.and_then(Point::spread),
            ratio: None,
            verdict: CellVerdict::Alone,
        }
    }

    /// Whether all repetitions were flagged.
    pub fn is_unsound(&self) -> bool {
        self.point.is_some() && self.spread.is_none()
    }

    fn can_be_base(&self) -> bool {
        self.spread.is_some_and(|spread| spread.median > 0.0)
    }

    fn compare_to(&mut self, base: Option<Spread>, is_base: bool, better: Better) {
        let (Some(base), Some(spread)) = (base, self.spread) else { return };
        let ratio = spread.divided_by(base.median);
        let is_number = ratio.median.is_finite() && ratio.high.is_finite();
        if base.median > 0.0 && ratio.median >= 0.0 && is_number {
            self.ratio = Some(ratio);
        }
        let less = spread.median < base.median;
        self.verdict = match better {
            _ if is_base => CellVerdict::Base,
            _ if spread.equals(&base) => CellVerdict::Equal,
            Better::Neither => CellVerdict::Different,
            Better::Lower if less => CellVerdict::Better,
            Better::Higher if !less => CellVerdict::Better,
            Better::Lower | Better::Higher => CellVerdict::Worse,
        };
    }
}

impl ArticleSeries<'_> {
    fn compare_to(&mut self, base: Option<f64>) {
        let Some(base) = base.filter(|base| *base > 0.0) else { return };
        for cell in &mut self.cells {
            let ratio = cell.value.map(|value| value / base);
            cell.ratio = ratio.filter(|ratio| ratio.is_finite());
        }
    }
}

impl PublishedValue {
    fn of(seed: &PublishedSeries, place: &str) -> PublishedValue {
        let point = seed.points.iter().find(|(x, _)| *x == place);
        PublishedValue { value: point.map(|(_, value)| *value), ratio: None }
    }

    fn can_be_base(&self) -> bool {
        self.value.is_some_and(|value| value > 0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::html::outcome_fixtures;

    const SEEDS: [PublishedSeries; 2] = [
        PublishedSeries {
            series: "a store",
            beside: "ours",
            figure: "reads",
            unit: "µs",
            points: &[("10", 40.0), ("20", 10.0), ("30", 7.0)],
        },
        PublishedSeries {
            series: "another",
            beside: "missing",
            figure: "reads",
            unit: "µs",
            points: &[("0", 8.0), ("20", 4.0)],
        },
    ];

    fn ratios(line: &SeriesRow<'_>) -> Vec<Option<f64>> {
        line.cells.iter().map(|cell| cell.ratio.map(|ratio| ratio.median)).collect()
    }

    #[test]
    fn ratios_are_to_the_first_place_common_to_all() {
        let points = [("0", 20.0), ("10", 10.0), ("20", 5.0)];
        let outcome = outcome_fixtures::outcome("reads", &[("ours", &points)]);
        let alone = Comparison::of(&outcome, &outcome.figures[0], &[]).unwrap();
        assert_eq!(ratios(&alone.lines[0]), [Some(1.0), Some(0.5), Some(0.25)]);
        assert_eq!((alone.base_name(), alone.has_articles()), (Some("0"), false));

        let seeded = Comparison::of(&outcome, &outcome.figures[0], &SEEDS).unwrap();
        assert_eq!(ratios(&seeded.lines[0]), [Some(2.0), Some(1.0), Some(0.5)]);
        assert_eq!((seeded.base_name(), seeded.has_articles()), (Some("10"), true));
        let of = |at: usize| seeded.articles[at].cells.iter().map(|cell| cell.ratio);
        assert!(of(0).eq([None, Some(1.0), Some(0.25)]));
        assert!(of(1).eq([Some(1.0), None, Some(0.5)]));
        assert_eq!(seeded.published("ours", "20")[0].1.value, Some(10.0));
        assert!(seeded.published("ours", "0").is_empty());
    }

    #[test]
    fn series_at_one_place_are_compared_with_the_first_one() {
        let series: [(&str, &[(&str, f64)]); 3] =
            [("a", &[("all", 8.0)]), ("b", &[("all", 2.0)]), ("c", &[("all", 8.1)])];
        let outcome = outcome_fixtures::outcome("reads", &series);
        let compared = Comparison::of(&outcome, &outcome.figures[0], &[]).unwrap();
        let of = |at: usize| compared.lines[at].cells[0].verdict;
        assert_eq!(
            [of(0), of(1), of(2)],
            [CellVerdict::Base, CellVerdict::Better, CellVerdict::Equal]
        );
        assert_eq!(ratios(&compared.lines[1]), [Some(0.25)]);
        assert_eq!(compared.base_name(), Some("a"));
    }

    #[test]
    fn zero_or_flagged_figure_is_no_base() {
        let points = [("0", 0.0), ("10", f64::NAN), ("20", 5.0), ("30", 10.0)];
        let outcome = outcome_fixtures::outcome("reads", &[("ours", &points)]);
        let compared = Comparison::of(&outcome, &outcome.figures[0], &[]).unwrap();
        assert_eq!(ratios(&compared.lines[0]), [Some(0.0), None, Some(1.0), Some(2.0)]);
        assert!(compared.lines[0].cells[1].is_unsound());
        assert_eq!(compared.base_name(), Some("20"));

        let zeros = outcome_fixtures::outcome("reads", &[("ours", &[("0", 0.0), ("10", 0.0)])]);
        let compared = Comparison::of(&zeros, &zeros.figures[0], &[]).unwrap();
        assert_eq!(ratios(&compared.lines[0]), [None, None]);
        assert_eq!(compared.lines[0].cells[1].verdict, CellVerdict::Equal);
    }

    #[test]
    fn single_figure_is_not_compared() {
        let outcome = outcome_fixtures::outcome("reads", &[("ours", &[("all", 3.0)])]);
        let compared = Comparison::of(&outcome, &outcome.figures[0], &[]).unwrap();
        assert_eq!(compared.lines[0].cells[0].verdict, CellVerdict::Alone);
        assert_eq!(compared.base_name(), None);
    }

    #[test]
    fn better_direction_depends_on_the_figure() {
        let points = [("0", 2.0), ("10", 4.0)];
        let mut outcome = outcome_fixtures::outcome("reads", &[("ours", &points)]);
        for (better, verdict) in [
            (Better::Lower, CellVerdict::Worse),
            (Better::Higher, CellVerdict::Better),
            (Better::Neither, CellVerdict::Different),
        ] {
            outcome.figures[0].better = better;
            let compared = Comparison::of(&outcome, &outcome.figures[0], &[]).unwrap();
            assert_eq!(compared.lines[0].cells[1].verdict, verdict);
        }
    }
}
