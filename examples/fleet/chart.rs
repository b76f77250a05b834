//! What was admitted over time, as an SVG.

use std::error::Error;
use std::time::Duration;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::load::Kind;
use crate::report::{Phase, Report};

const SIZE: (u32, u32) = (800, 420);
const PER_PROCESS: RGBColor = RGBColor(0xd9, 0x5f, 0x02);
const SHARED: RGBColor = RGBColor(0x1b, 0x7f, 0x5f);
const TEXT: RGBColor = RGBColor(0x33, 0x33, 0x33);
const GRID: RGBColor = RGBColor(0xe4, 0xe4, 0xe4);

/// Both phases from their first request on, with the limit as a dashed line.
pub(crate) fn draw(report: &Report) -> Result<String, Box<dyn Error>> {
    // A label stands above its line, but a single instance has both lines at one height.
    let alone = report.args.instances == 1;
    let phases = [
        (&report.per_process, PER_PROCESS, VPos::Bottom),
        (
            &report.shared,
            SHARED,
            if alone { VPos::Top } else { VPos::Bottom },
        ),
    ];
    let longest = phases.iter().map(|(phase, ..)| phase.took()).max();
    let end = millis(longest.unwrap_or_default()).max(1.0);
    let most = phases.iter().map(|(phase, ..)| phase.admitted()).max();
    let top = most.unwrap_or_default().max(report.args.limit) as f64 * 1.15;

    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(title(report), ("sans-serif", 19).into_font().color(&TEXT))
            .margin(14)
            .x_label_area_size(38)
            .y_label_area_size(52)
            .build_cartesian_2d(0.0..end, 0.0..top)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .max_light_lines(0)
            .bold_line_style(GRID)
            .axis_style(TEXT)
            .label_style(("sans-serif", 13).into_font().color(&TEXT))
            .x_desc("milliseconds since the first request")
            .y_desc("requests admitted")
            .x_label_formatter(&|ms| format!("{ms:.0}"))
            .y_label_formatter(&|admitted| format!("{admitted:.0}"))
            .draw()?;
        let limit = report.args.limit as f64;
        let dashes = [(0.0, limit), (end, limit)];
        chart.draw_series(DashedLineSeries::new(dashes, 6, 5, TEXT.mix(0.6).stroke_width(1)))?;
        for (phase, colour, anchor) in phases {
            chart.draw_series(LineSeries::new(steps(phase, end), colour.stroke_width(3)))?;
            let label = format!("{}: {} admitted", phase.name, phase.admitted());
            let gap = if matches!(anchor, VPos::Top) { -0.02 } else { 0.015 };
            let place = (end * 0.99, phase.admitted() as f64 + top * gap);
            let font = ("sans-serif", 15).into_font().color(&colour);
            chart.draw_series([Text::new(label, place, font.pos(Pos::new(HPos::Right, anchor)))])?;
        }
        area.present()?;
    }
    Ok(svg)
}

fn title(report: &Report) -> String {
    format!(
        "{} requests to {} instances, limit {} per {} s",
        report.args.requests,
        report.args.instances,
        report.args.limit,
        report.args.window.as_secs(),
    )
}

/// How many were admitted, from 0 at the start to all of them at the end.
fn steps(phase: &Phase, end: f64) -> Vec<(f64, f64)> {
    let mut points = vec![(0.0, 0.0)];
    let mut admitted = 0.0;
    for answer in &phase.answers {
        if answer.kind == Kind::Admitted {
            points.push((millis(answer.at), admitted));
            admitted += 1.0;
            points.push((millis(answer.at), admitted));
        }
    }
    points.push((end, admitted));
    points
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
