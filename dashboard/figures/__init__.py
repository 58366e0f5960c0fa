"""Arrays to Plotly figures; pure functions that know neither Streamlit nor torch."""
