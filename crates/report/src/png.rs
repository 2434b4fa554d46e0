//! Plots as PNG, drawn from the SVG that stands beside them.
//!
//! Text is set in DejaVu Sans, which is built in: the same plot has the same pixels on every machine, whatever fonts are
//! installed there, and if none are.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use anabranch_results::OutputError;
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree};

/// Pixels of the image per pixel of the figure: sharp on paper and on dense screens.
const SCALE: f32 = 2.0;
const FONT: &str = "DejaVu Sans";

/// Draws every SVG in `directory` as a PNG of the same name, but those that have one which is not older.
pub fn draw_pngs(directory: &Path) -> Result<(), OutputError> {
    let painter = Painter::default();
    for entry in fs::read_dir(directory).map_err(OutputError::io(directory))? {
        let svg = entry.map_err(OutputError::io(directory))?.path();
        let png = svg.with_extension("png");
        if svg.extension().is_some_and(|end| end == "svg") && is_newer(&svg, &png) {
            let text = fs::read_to_string(&svg).map_err(OutputError::io(&svg))?;
            let image = painter.paint(&svg.display().to_string(), &text)?;
            fs::write(&png, image).map_err(OutputError::io(&png))?;
        }
    }
    Ok(())
}

/// Whether `path` was written after `other`, or `other` is not there.
fn is_newer(path: &Path, other: &Path) -> bool {
    let written = |path: &Path| -> Option<SystemTime> { fs::metadata(path).ok()?.modified().ok() };
    written(path) > written(other)
}

/// What makes pixels of an SVG.
pub(crate) struct Painter(Options<'static>);

impl Default for Painter {
    fn default() -> Self {
        let mut options = Options::default();
        let fonts = options.fontdb_mut();
        fonts.load_font_data(dejavu::sans::regular().to_vec());
        fonts.set_sans_serif_family(FONT);
        Painter(options)
    }
}

impl Painter {
    /// The bytes of the PNG; `name` is for the error.
    pub fn paint(&self, name: &str, svg: &str) -> Result<Vec<u8>, OutputError> {
        let plot_error = |reason: String| OutputError::Plot {
            name: name.to_owned(),
            reason,
        };
        let tree = Tree::from_str(svg, &self.0).map_err(|error| plot_error(error.to_string()))?;
        let size = tree.size().to_int_size().scale_by(SCALE);
        let size = size.ok_or_else(|| plot_error("it has no size".to_owned()))?;
        let image = Pixmap::new(size.width(), size.height());
        let mut image = image.ok_or_else(|| plot_error("it is too large".to_owned()))?;
        resvg::render(
            &tree,
            Transform::from_scale(SCALE, SCALE),
            &mut image.as_mut(),
        );
        image
            .encode_png()
            .map_err(|error| plot_error(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BARE: &str =
        r#"<svg xmlns="http://www.w3.org/2000/svg" width="80" height="40" viewBox="0 0 80 40">"#;

    /// The image of an SVG with `body`.
    fn drawn(body: &str) -> Pixmap {
        let svg = format!("{BARE}{body}</svg>");
        Pixmap::decode_png(&Painter::default().paint("plot", &svg).unwrap()).unwrap()
    }

    #[test]
    fn text_is_drawn_whatever_fonts_are_installed() {
        let text = |words: &str| {
            let body = format!(r#"<text x="4" y="30" font-family="sans-serif">{words}</text>"#);
            let image = drawn(&body);
            assert_eq!((image.width(), image.height()), (160, 80));
            let inked = |pixel: &&resvg::tiny_skia::PremultipliedColorU8| pixel.alpha() > 0;
            image.pixels().iter().filter(inked).count()
        };
        assert_eq!(text(""), 0);
        assert!(text("EBU ± µs") > 2 * text("E"));
    }

    #[test]
    fn a_png_is_drawn_for_each_svg_that_is_newer_and_for_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in ["a.svg", "b.svg"] {
            fs::write(path(name), format!("{BARE}</svg>")).unwrap();
        }
        fs::write(path("b.png"), "a later drawing").unwrap();
        fs::write(path("links.csv"), "link").unwrap();
        draw_pngs(directory.path()).unwrap();
        assert!(fs::read(path("a.png")).unwrap().starts_with(b"\x89PNG"));
        assert_eq!(
            fs::read_to_string(path("b.png")).unwrap(),
            "a later drawing"
        );
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 5);
    }

    #[test]
    fn what_is_no_svg_is_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("x.svg"), "<html>").unwrap();
        let error = draw_pngs(directory.path()).unwrap_err().to_string();
        assert!(error.contains("x.svg"), "{error}");
    }
}
