//! Line plots as SVG: a logarithmic x axis, a linear y axis from zero, one line per series.

use crate::report::format_figure;
use std::fmt::Write;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 200.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 50.0;
const Y_TICKS: u32 = 5;
/// Distinguishable also with colour-blindness (Okabe and Ito), on a light and a dark page.
const COLOURS: [&str; 9] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#999999", "#b8a800", "#000000"];

pub(crate) struct Series {
    pub(crate) name: String,
    /// In the order of x, which is positive.
    pub(crate) points: Vec<(f64, f64)>,
}

pub(crate) struct Plot {
    pub(crate) title: &'static str,
    pub(crate) x_label: &'static str,
    pub(crate) y_label: &'static str,
    pub(crate) series: Vec<Series>,
}

impl Plot {
    pub(crate) fn into_svg(self) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points).filter(|(x, y)| *x > 0.0 && y.is_finite());
        let (x_min, x_max) = points().fold((f64::MAX, 1.0_f64), |(low, high), (x, _)| (low.min(*x), high.max(*x)));
        let y_max = points().fold(0.0_f64, |high, (_, y)| high.max(*y)).max(f64::MIN_POSITIVE) * 1.1;
        let decades = (x_max / x_min).log10().max(f64::MIN_POSITIVE);
        let x_of = |x: f64| LEFT + (x / x_min).log10() / decades * (WIDTH - LEFT - RIGHT);
        let y_of = |y: f64| HEIGHT - BOTTOM - y / y_max * (HEIGHT - TOP - BOTTOM);

        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
             font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n"
        );
        let mut text = |x: f64, y: f64, anchor: &str, words: &str| {
            // Writing to a String cannot fail.
            let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>");
        };
        text(LEFT, TOP - 18.0, "start", self.title);
        text(LEFT, TOP - 4.0, "start", self.y_label);
        text((WIDTH - RIGHT + LEFT) / 2.0, HEIGHT - 10.0, "middle", self.x_label);
        let mut ticks: Vec<f64> = points().map(|(x, _)| *x).collect();
        ticks.sort_unstable_by(f64::total_cmp);
        ticks.dedup();
        for x in ticks {
            text(x_of(x), HEIGHT - BOTTOM + 18.0, "middle", &format_count(x));
        }
        for tick in 0..=Y_TICKS {
            let y = y_max * f64::from(tick) / f64::from(Y_TICKS);
            text(LEFT - 6.0, y_of(y) + 4.0, "end", &format_figure(y));
        }
        for (index, series) in self.series.iter().enumerate() {
            text(WIDTH - RIGHT + 24.0, TOP + 18.0 * (index as f64) + 4.0, "start", &series.name);
        }
        for tick in 0..=Y_TICKS {
            let y = y_of(y_max * f64::from(tick) / f64::from(Y_TICKS));
            let _ = writeln!(
                svg,
                "<line x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\" stroke=\"#dddddd\"/>",
                WIDTH - RIGHT
            );
        }
        for (index, (series, colour)) in self.series.iter().zip(COLOURS.iter().cycle()).enumerate() {
            let path: Vec<String> =
                series.points.iter().map(|(x, y)| format!("{:.1},{:.1}", x_of(*x), y_of(*y))).collect();
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
                path.join(" ")
            );
            for (x, y) in &series.points {
                let _ =
                    writeln!(svg, "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>", x_of(*x), y_of(*y));
            }
            let y = TOP + 18.0 * (index as f64);
            let x = WIDTH - RIGHT + 8.0;
            let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\" fill=\"{colour}\"/>");
        }
        svg + "</svg>\n"
    }
}

/// A number of streams, viewers or events: whole, with the unit of its size.
fn format_count(count: f64) -> String {
    match count {
        count if count >= 1e6 => format!("{:.0} M", count / 1e6),
        count if count >= 1e3 => format!("{:.0} k", count / 1e3),
        count => format!("{count:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_lies_inside_the_axes_and_has_its_mark() {
        let points = vec![(10.0, 1.0), (100.0, 2.0), (1000.0, 4.0)];
        let series = vec![Series { name: "a".into(), points }];
        let svg = Plot { title: "t", x_label: "x", y_label: "y", series }.into_svg();
        // Three points and the key.
        assert_eq!(svg.matches("<circle").count(), 4);
        let line = svg.split("points=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        let places: Vec<(f64, f64)> = line
            .split(' ')
            .map(|place| place.split_once(',').unwrap())
            .map(|(x, y)| (x.parse().unwrap(), y.parse().unwrap()))
            .collect();
        assert_eq!(places.first().unwrap().0.to_bits(), LEFT.to_bits());
        assert!(places.windows(2).all(|pair| matches!(pair, [a, b] if a.0 < b.0 && a.1 > b.1)), "{places:?}");
        assert!(places.iter().all(|(x, y)| (LEFT..=WIDTH - RIGHT).contains(x) && (TOP..=HEIGHT - BOTTOM).contains(y)));
    }

    #[test]
    fn one_point_is_a_plot() {
        let series = vec![Series { name: "a".into(), points: vec![(5.0, 0.0)] }];
        let svg = Plot { title: "t", x_label: "x", y_label: "y", series }.into_svg();
        assert!(svg.starts_with("<svg") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
